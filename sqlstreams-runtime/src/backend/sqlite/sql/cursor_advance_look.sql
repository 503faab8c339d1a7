-- sqlstreams: cursor.advance_look
-- $1 group. Whether the settled position is above `committed`: asked outside any transaction, so that an idle group never
-- takes the write lock.
select min(
    s.claimed,
    coalesce((select min(low) from "{schema}claim_lease_{stream}" where consumer_group_id = $1), s.claimed),
    coalesce((select min(low) from "{schema}parked_range_{stream}" where consumer_group_id = $1), s.claimed),
    coalesce((select min(message_id) - 1
        from "{schema}exception_queue_{stream}" indexed by "{schema}exception_queue_{stream}_open"
        where consumer_group_id = $1 and status in ('ready', 'inflight', 'deferred') and message_id > s.committed),
        s.claimed)
) > s.committed as found
from "{schema}consumer_group_cursor_{stream}" s
where s.consumer_group_id = $1
