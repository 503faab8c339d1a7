-- sqlstreams: delayed.promote_remove
-- $1 limit, $2 now. The answer of a promotion.
delete from "{schema}delayed_message_{stream}"
where id in (
    select id
    from "{schema}delayed_message_{stream}"
    where deliver_at <= $2
    order by deliver_at, id
    limit $1
)
returning deliver_at, last_insert_rowid() as newest
