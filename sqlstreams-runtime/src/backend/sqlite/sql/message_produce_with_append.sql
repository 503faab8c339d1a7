-- sqlstreams: message.produce_with_append
-- $1 version, $2 codec, $3 payloads, $4 messages as in message.produce_with.
insert into "{schema}message_log_{stream}" (id, schema_version, codec, routing_key, message_key, headers, payload)
select b.log + m.key + 1, $1, $2, m.value ->> 2, m.value ->> 3, m.value ->> 4,
    cast(substr($3, m.value ->> 0, m.value ->> 1) as text)
from (
    select coalesce((select seq from sqlite_sequence where name = '{schema}message_log_{stream}'), 0) as log
) b
cross join json_each($4) m
left join "{schema}idempotency_key_{stream}" k on k.key = unhex(m.value ->> 6)
where m.value ->> 5 is null and (m.value ->> 6 is null or k.message_id = b.log + m.key + 1)
