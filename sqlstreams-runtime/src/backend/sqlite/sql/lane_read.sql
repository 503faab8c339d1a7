-- sqlstreams: lane.read
-- $1 key, $2 after this id, $3 up to this id, $4 limit, $5 versions to read with payload as a JSON array, $6 globs for
-- the routing key as a JSON array or null.
select id, coalesce(produced_at, created_at) as created_at, schema_version, codec, routing_key, message_key, headers,
    case when schema_version in (select value from json_each($5)) then coalesce(payload, payload_bytes) end as payload,
    scheduled_at
from "{schema}message_log_{stream}"
where message_key = $1 and id > $2 and id <= $3
    and ($6 is null or exists (select 1 from json_each($6) where routing_key glob value))
order by id
limit $4
