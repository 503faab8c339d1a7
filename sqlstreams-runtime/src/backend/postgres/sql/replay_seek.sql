-- sqlstreams: replay.seek
-- $1 group, $2 beginning, head, id or time, $3 the id or the time in microseconds.
-- From where to where a move goes, and what the log holds. Back: not below the first stored message; with none stored
-- there is nothing to go back to. Forward: as far as nothing uncommitted lies below.
-- The proof is that of claim.take: by the snapshot of this very statement.
with log as materialized (
    select
        coalesce(pg_sequence_last_value('"{schema}"."message_log_{stream}_id_seq"'::regclass), 0) as head,
        (select id from "{schema}"."message_log_{stream}" order by id limit 1) as first
),
wanted as materialized (
    select l.head, l.first, case $2
        when 'beginning' then 0
        when 'head' then l.head
        when 'id' then greatest($3 - 1, 0)
        else coalesce(
            (select m.id - 1 from "{schema}"."message_log_{stream}" m
                where $2 = 'time' and m.created_at >= timestamptz 'epoch' + $3::bigint * interval '1 microsecond'
                order by m.id limit 1),
            l.head)
    end as id
    from log l
),
seen as materialized (
    select w.*, c.claimed, greatest(
        c.proven_head,
        c.claimed,
        case when pg_snapshot_xmin(pg_current_snapshot()) >= c.pending_xid then c.pending_head end,
        case when not exists (
            select from unnest(c.exact_xids) x
            where not pg_visible_in_snapshot(x, pg_current_snapshot())
        ) then c.exact_head end
    ) as proven
    from wanted w
    cross join lateral (
        select * from "{schema}"."consumer_group_cursor_{stream}"
        where consumer_group_id = $1
        order by seq desc
        limit 1
    ) c
)
select claimed, id as wanted,
    case when id < claimed then least(claimed, greatest(id, coalesce(first - 1, claimed))) else least(id, proven) end as target,
    first, head
from seen
