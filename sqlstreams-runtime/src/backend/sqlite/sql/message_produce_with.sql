-- sqlstreams: message.produce_with
-- Differs from postgres: several statements in one immediate transaction: this one, message.produce_with_look,
-- message.produce_with_append and message.produce_with_delay. Each message's ids follow from the newest that were drawn
-- and its place, the same in all of them: whoever holds the write lock sees no other draw.
-- $1 version, $2 codec, $3 the payloads behind each other, $4 JSON, one array a message: the payload's first byte, from
-- 1, and its length, routing key, message key, headers, the time to deliver at or null, idempotency key, payload hash,
-- and how long the key is kept; $5 now, in microseconds.
insert into "{schema}idempotency_key_{stream}" (key, message_id, delayed_id, payload_hash, expires_at)
select unhex(m.value ->> 6),
    iif(m.value ->> 5 is null, b.log + m.key + 1, null),
    iif(m.value ->> 5 is null, null, b.delayed + m.key + 1),
    unhex(m.value ->> 7),
    max($5, coalesce(m.value ->> 5, $5)) + (m.value ->> 8)
from (
    select
        coalesce((select seq from sqlite_sequence where name = '{schema}message_log_{stream}'), 0) as log,
        coalesce((select seq from sqlite_sequence where name = '{schema}delayed_message_{stream}'), 0) as delayed
) b
cross join json_each($4) m
where m.value ->> 6 is not null
on conflict (key) do nothing
