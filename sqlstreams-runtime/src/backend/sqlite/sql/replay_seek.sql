-- sqlstreams: replay.seek
-- $1 group, $2 beginning, head, id or time, $3 the id or the time in microseconds.
-- From where to where a move goes, and what the log holds. Back: not below the first stored message; with none stored
-- there is nothing to go back to. Writers are serial: nothing can still be filled in below the
-- newest id.
with log as materialized (
    select
        coalesce((select seq from sqlite_sequence where name = '{schema}message_log_{stream}'), 0) as head,
        (select min(id) from "{schema}message_log_{stream}") as first
),
wanted as materialized (
    select l.head, l.first, case $2
        when 'beginning' then 0
        when 'head' then l.head
        when 'id' then max($3 - 1, 0)
        else coalesce(
            (select m.id - 1 from "{schema}message_log_{stream}" m
                where $2 = 'time' and m.created_at >= $3
                order by m.id limit 1),
            l.head)
    end as id
    from log l
)
select c.claimed, w.id as wanted,
    iif(w.id < c.claimed, min(c.claimed, max(w.id, coalesce(w.first - 1, c.claimed))), min(w.id, max(w.head, c.claimed))) as target,
    w.first, w.head
from wanted w
cross join "{schema}consumer_group_cursor_{stream}" c
where c.consumer_group_id = $1
