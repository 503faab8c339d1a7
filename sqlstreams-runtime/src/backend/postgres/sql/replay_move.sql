-- sqlstreams: replay.move
-- $1 group, $2 where the group will stand. Under the claim lock. What is proven stays proven. A new epoch: whoever read
-- a position before may not write it any more.
with last as materialized (
    select * from "{schema}"."consumer_group_cursor_{stream}"
    where consumer_group_id = $1
    order by seq desc
    limit 1
),
next as (
    insert into "{schema}"."consumer_group_cursor_{stream}" (
        consumer_group_id, seq, epoch, claimed, committed, proven_head,
        pending_head, pending_xid, exact_head, exact_xids, replay_until
    )
    select $1, seq + 1, epoch + 1, $2, least(committed, $2), proven_head,
        pending_head, pending_xid, exact_head, exact_xids,
        nullif(greatest(replay_until, claimed, $2), $2)
    from last
)
delete from "{schema}"."consumer_group_cursor_{stream}" c
where c.consumer_group_id = $1 and c.seq = (select seq from last)
