-- sqlstreams: replay.pause
-- $1 group, $2 for so long, in microseconds; null lets the group go on. Under the claim lock. The end of the pause is
-- stored, so that it ends by itself when the caller is lost.
with last as materialized (
    select * from "{schema}"."consumer_group_cursor_{stream}"
    where consumer_group_id = $1
    order by seq desc
    limit 1
),
next as (
    insert into "{schema}"."consumer_group_cursor_{stream}" (
        consumer_group_id, seq, epoch, claimed, committed, proven_head,
        pending_head, pending_xid, exact_head, exact_xids, replay_until, paused_until
    )
    select $1, seq + 1, epoch, claimed, committed, proven_head,
        pending_head, pending_xid, exact_head, exact_xids, replay_until,
        clock_timestamp() + $2::bigint * interval '1 microsecond'
    from last
)
delete from "{schema}"."consumer_group_cursor_{stream}" c
where c.consumer_group_id = $1 and c.seq = (select seq from last)
