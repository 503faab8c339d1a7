-- sqlstreams: letter.read
-- $1 group, $2 message. The message as the log holds it, else its copy.
select e.message_id, e.schema_version, e.message_key, e.attempts, e.failures_total, e.kills, e.delays, e.redrives,
    e.first_failed_at, e.died_at, e.last_error, e.status, e.can_run_after,
    coalesce(m.id, p.message_id) as id, coalesce(m.produced_at, m.created_at, p.produced_at, p.created_at) as created_at,
    coalesce(m.schema_version, p.schema_version) as version, coalesce(m.codec, p.codec) as codec,
    coalesce(m.routing_key, p.routing_key) as routing_key, coalesce(m.message_key, p.message_key) as key,
    coalesce(m.headers, p.headers) as headers,
    coalesce(m.payload, m.payload_bytes, p.payload, p.payload_bytes) as payload,
    coalesce(m.scheduled_at, p.scheduled_at) as scheduled_at
from "{schema}exception_queue_{stream}" e
left join "{schema}message_log_{stream}" m on m.id = e.message_id
left join "{schema}exception_payload_{stream}" p on p.message_id = e.message_id and m.id is null
where e.consumer_group_id = $1 and e.message_id = $2
