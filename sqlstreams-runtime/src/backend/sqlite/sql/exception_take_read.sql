-- sqlstreams: exception.take_read
-- $1 group, $3 token. After the taking commit: no lock is held while payloads are copied.
select e.message_id, e.attempts, e.failures, e.delays, e.kills,
    m.id, coalesce(m.produced_at, m.created_at) as created_at, m.schema_version, m.codec, m.routing_key, m.message_key, m.headers,
    coalesce(m.payload, m.payload_bytes) as payload, m.scheduled_at
from "{schema}exception_queue_{stream}" e indexed by "{schema}exception_queue_{stream}_inflight"
left join "{schema}message_log_{stream}" m on m.id = e.message_id
where e.consumer_group_id = $1 and e.status = 'inflight' and e.token = $3
order by e.message_id
