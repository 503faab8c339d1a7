-- sqlstreams: message.produce_with_delay
-- $1 version, $2 codec, $3 payloads, $4 messages as in message.produce_with, $5 now.
insert into "{schema}delayed_message_{stream}" (
    id, deliver_at, created_at, schema_version, codec, routing_key, message_key, headers, payload, idempotency_key
)
select b.delayed + m.key + 1, m.value ->> 5, $5, $1, $2, m.value ->> 2, m.value ->> 3, m.value ->> 4,
    cast(substr($3, m.value ->> 0, m.value ->> 1) as text), unhex(m.value ->> 6)
from (
    select coalesce((select seq from sqlite_sequence where name = '{schema}delayed_message_{stream}'), 0) as delayed
) b
cross join json_each($4) m
left join "{schema}idempotency_key_{stream}" k on k.key = unhex(m.value ->> 6)
where m.value ->> 5 is not null and (m.value ->> 6 is null or k.delayed_id = b.delayed + m.key + 1)
