-- sqlstreams: message.read
-- Differs from postgres: all messages come as one row, since a row of its own for each costs more than the
-- rest; and $5 lets some pass that no pattern matches, so that the caller looks again.
-- $1 low, $2 high, $3 versions to read with payload as a JSON array, $4 the only version or null, $5 globs
-- for the routing key as a JSON array or null.
-- Answers JSON, one array a message: id, creation, version, codec, and the lengths in bytes of routing key,
-- message key, headers and payload, null where there is none, and for when it was scheduled; and these texts behind each other.
select
    json_group_array(json_array(
        id, created_at, schema_version, codec,
        octet_length(routing_key), octet_length(message_key), octet_length(headers), octet_length(payload),
        scheduled_at)) as messages,
    group_concat(concat(routing_key, message_key, headers, payload), '') as texts
from (
    select id, coalesce(produced_at, created_at) as created_at, schema_version, codec, routing_key, message_key, headers,
        scheduled_at,
        case when schema_version in (select value from json_each($3)) then coalesce(payload, payload_bytes) end as payload
    from "{schema}message_log_{stream}"
    where id > $1 and id <= $2
        and ($4 is null or schema_version = $4)
        and ($5 is null or exists (select 1 from json_each($5) where routing_key glob value))
    order by id
)
