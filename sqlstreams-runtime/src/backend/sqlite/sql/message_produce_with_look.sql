-- sqlstreams: message.produce_with_look
-- $4 messages as in message.produce_with, whose answer this is.
select
    iif(m.value ->> 5 is null, b.log + m.key + 1, null) as id,
    iif(m.value ->> 5 is null, null, b.delayed + m.key + 1) as delayed_id,
    m.value ->> 6 is null or coalesce(k.message_id > b.log, false) or coalesce(k.delayed_id > b.delayed, false) as fresh,
    k.message_id as first_id, k.delayed_id as first_delayed_id, k.payload_hash = unhex(m.value ->> 7) as same
from (
    select
        coalesce((select seq from sqlite_sequence where name = '{schema}message_log_{stream}'), 0) as log,
        coalesce((select seq from sqlite_sequence where name = '{schema}delayed_message_{stream}'), 0) as delayed
) b
cross join json_each($4) m
left join "{schema}idempotency_key_{stream}" k on k.key = unhex(m.value ->> 6)
order by m.key
