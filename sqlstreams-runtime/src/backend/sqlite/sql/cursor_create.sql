-- sqlstreams: cursor.create
-- Differs from postgres: writers are serial, so that nothing can still be filled in below the newest id.
-- $1 group, $2 beginning, head, id or time, $3 the id or the time in microseconds.
with head as materialized (
    select coalesce((select seq from sqlite_sequence where name = '{schema}message_log_{stream}'), 0) as id
),
start as materialized (
    select case $2
        when 'beginning' then 0
        when 'head' then h.id
        when 'id' then max($3 - 1, 0)
        else coalesce(
            (select m.id - 1 from "{schema}message_log_{stream}" m
                where $2 = 'time' and m.created_at >= $3
                order by m.id limit 1),
            h.id)
    end as id
    from head h
)
insert into "{schema}consumer_group_cursor_{stream}" (consumer_group_id, seq, epoch, claimed, committed)
select $1, 1, 0, id, id from start
