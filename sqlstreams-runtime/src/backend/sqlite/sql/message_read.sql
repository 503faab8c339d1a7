-- sqlstreams: message.read
-- Differs from postgres: $5 lets some rows pass that no pattern matches; the caller looks again.
-- $1 low, $2 high, $3 versions to read with payload as a JSON array, $4 the only version or null, $5 globs
-- for the routing key as a JSON array or null.
select id, created_at, schema_version, codec, routing_key, message_key, headers,
    case when schema_version in (select value from json_each($3)) then coalesce(payload, payload_bytes) end as payload
from "{schema}message_log_{stream}"
where id > $1 and id <= $2
    and ($4 is null or schema_version = $4)
    and ($5 is null or exists (select 1 from json_each($5) where routing_key glob value))
order by id
