-- sqlstreams: lane.list
-- $1 group, $2 after this key or null, $3 limit.
select e.message_key, e.message_id, e.schema_version, e.held_to, e.status = 'inflight' as running, e.attempts, e.failures,
    case e.status when 'inflight' then 0
        else greatest(0, (extract(epoch from e.can_run_after - clock_timestamp()) * 1000000)::bigint) end as due_in,
    e.last_error
from "{schema}"."exception_queue_{stream}" e
where e.consumer_group_id = $1 and e.held_to is not null
    and ($2::text is null or e.message_key collate "C" > $2)
order by e.message_key collate "C"
limit $3
