-- sqlstreams: cursor.create
-- $1 group, $2 beginning, head, id or time, $3 the id or the time in microseconds.
-- A transaction that is open at the head keeps its messages from a group that starts there: by intention.
with head as materialized (
    select coalesce(pg_sequence_last_value('"{schema}"."message_log_{stream}_id_seq"'::regclass), 0) as id
),
start as materialized (
    select case $2
        when 'beginning' then 0
        when 'head' then h.id
        when 'id' then greatest($3 - 1, 0)
        else coalesce(
            (select m.id - 1 from "{schema}"."message_log_{stream}" m
                where $2 = 'time' and m.created_at >= timestamptz 'epoch' + $3::bigint * interval '1 microsecond'
                order by m.id limit 1),
            h.id)
    end as id
    from head h
)
insert into "{schema}"."consumer_group_cursor_{stream}" (consumer_group_id, seq, epoch, claimed, committed, proven_head)
select $1, 1, 0, id, id, 0 from start
