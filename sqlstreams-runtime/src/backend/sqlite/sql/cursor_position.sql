-- sqlstreams: cursor.position
-- $1 group.
with cursor as materialized (
    select claimed from "{schema}consumer_group_cursor_{stream}"
    where consumer_group_id = $1
),
open as materialized (
    select
        (select min(low) from "{schema}claim_lease_{stream}" where consumer_group_id = $1) as lease,
        (select min(low) from "{schema}parked_range_{stream}" where consumer_group_id = $1) as parked,
        (select min(message_id) - 1
            from "{schema}exception_queue_{stream}" indexed by "{schema}exception_queue_{stream}_open"
            where consumer_group_id = $1 and status in ('ready', 'inflight', 'deferred')) as exception
)
select
    coalesce((select seq from sqlite_sequence where name = '{schema}message_log_{stream}'), 0) as head,
    c.claimed,
    min(c.claimed, coalesce(o.lease, c.claimed), coalesce(o.parked, c.claimed), coalesce(o.exception, c.claimed)) as settled,
    (select count(*) from "{schema}exception_queue_{stream}"
        where consumer_group_id = $1 and status = 'ready') as ready,
    (select count(*) from "{schema}exception_queue_{stream}"
        where consumer_group_id = $1 and status = 'inflight') as inflight,
    (select count(*) from "{schema}exception_queue_{stream}"
        where consumer_group_id = $1 and status = 'dead') as dead,
    (select count(*) from "{schema}parked_range_{stream}" where consumer_group_id = $1) as parked
from cursor c
cross join open o
