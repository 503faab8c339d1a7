-- sqlstreams: lane.list
-- $1 group, $2 after this key or null, $3 limit.
select e.message_key, e.message_id, e.schema_version, e.held_to, e.status = 'inflight' as running, e.attempts, e.failures,
    iif(e.status = 'inflight', 0,
        max(0, e.can_run_after - cast(round(unixepoch('subsec') * 1000000) as integer))) as due_in,
    e.last_error
from "{schema}exception_queue_{stream}" e
where e.consumer_group_id = $1 and e.held_to is not null and ($2 is null or e.message_key > $2)
order by e.message_key
limit $3
