-- sqlstreams: message.read
-- $1 low, $2 high, $3 versions to read with payload, $4 the only version or null, $5 routing pattern or null.
-- The bounds are parameters, so that only the partitions between them are opened.
select id, coalesce(produced_at, created_at) as created_at, schema_version, codec, routing_key, message_key, headers,
    case when schema_version = any($3) then payload end as payload,
    case when schema_version = any($3) then payload_bytes end as payload_bytes,
    scheduled_at
from "{schema}"."message_log_{stream}"
where id > $1 and id <= $2
    and ($4::integer is null or schema_version = $4)
    and ($5::text is null or routing_key ~ $5)
order by id
