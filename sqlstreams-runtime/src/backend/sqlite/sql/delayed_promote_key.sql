-- sqlstreams: delayed.promote_key
-- $1 limit, $2 now. The log's new ids are a run that ends with the last one.
update "{schema}idempotency_key_{stream}"
set message_id = n.message_id
from (
    select idempotency_key, id,
        last_insert_rowid() - count(*) over () + row_number() over (order by deliver_at, id) as message_id
    from (
        select id, deliver_at, idempotency_key
        from "{schema}delayed_message_{stream}"
        where deliver_at <= $2
        order by deliver_at, id
        limit $1
    )
) n
where n.idempotency_key is not null
    and "{schema}idempotency_key_{stream}".key = n.idempotency_key
    and "{schema}idempotency_key_{stream}".delayed_id = n.id
