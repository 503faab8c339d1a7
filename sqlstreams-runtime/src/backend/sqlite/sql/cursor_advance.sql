-- sqlstreams: cursor.advance
-- $1 group. Moves `committed` to the settled position. Computed from rows and in one statement, so that no other claim or
-- rewind lies in between.
update "{schema}consumer_group_cursor_{stream}" as c
set committed = n.settled
from (
    select s.consumer_group_id, min(
        s.claimed,
        coalesce((select min(low) from "{schema}claim_lease_{stream}" where consumer_group_id = $1), s.claimed),
        coalesce((select min(low) from "{schema}parked_range_{stream}" where consumer_group_id = $1), s.claimed),
        coalesce((select min(message_id) - 1
            from "{schema}exception_queue_{stream}" indexed by "{schema}exception_queue_{stream}_open"
            where consumer_group_id = $1 and status in ('ready', 'inflight', 'deferred') and message_id > s.committed),
            s.claimed)
    ) as settled
    from "{schema}consumer_group_cursor_{stream}" s
    where s.consumer_group_id = $1
) n
where c.consumer_group_id = n.consumer_group_id and n.settled > c.committed
returning committed
