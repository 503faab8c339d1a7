-- sqlstreams: exception.take_read
-- $1 group, $3 token. After the taking commit: no lock is held while payloads are copied.
select e.message_id, e.attempts, e.failures, e.delays, e.kills, e.can_run_after, e.held_to, e.message_key as lane_key,
    e.replay_until,
    coalesce(m.id, p.message_id) as id,
    coalesce(m.produced_at, m.created_at, p.produced_at, p.created_at) as created_at,
    coalesce(m.schema_version, p.schema_version) as schema_version, coalesce(m.codec, p.codec) as codec,
    coalesce(m.routing_key, p.routing_key) as routing_key, coalesce(m.message_key, p.message_key) as message_key,
    coalesce(m.headers, p.headers) as headers,
    coalesce(m.payload, m.payload_bytes, p.payload, p.payload_bytes) as payload,
    coalesce(m.scheduled_at, p.scheduled_at) as scheduled_at
from "{schema}exception_queue_{stream}" e indexed by "{schema}exception_queue_{stream}_inflight"
left join "{schema}message_log_{stream}" m on m.id = e.message_id
left join "{schema}exception_payload_{stream}" p on p.message_id = e.message_id and m.id is null
where e.consumer_group_id = $1 and e.status = 'inflight' and e.token = $3
order by e.message_id
