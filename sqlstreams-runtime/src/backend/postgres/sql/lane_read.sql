-- sqlstreams: lane.read
-- $1 key, $2 after this id, $3 up to this id, $4 limit, $5 versions to read with payload, $6 routing pattern or null.
select id, coalesce(produced_at, created_at) as created_at, schema_version, codec, routing_key, message_key, headers,
    case when schema_version = any($5) then payload end as payload,
    case when schema_version = any($5) then payload_bytes end as payload_bytes,
    scheduled_at
from "{schema}"."message_log_{stream}"
where message_key = $1 and id > $2 and id <= $3
    and ($6::text is null or routing_key ~ $6)
order by id
limit $4
