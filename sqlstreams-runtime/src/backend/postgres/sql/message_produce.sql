-- sqlstreams: message.produce
-- $1 version, $2 codec, $3 payloads, $4 routing keys, $5 message keys, $6 headers; one element a message.
-- The transaction owns an xid before it draws a message id, which a plain INSERT does not: the claim's
-- proof rests on it. No ORDER BY: a sort could draw the ids in another order than the arrays'.
-- A session that turned durable commits off gets one here; other settings, also stronger ones, stay.
with x as materialized (
    select pg_current_xact_id() as xid,
        case when current_setting('synchronous_commit') = 'off'
            then set_config('synchronous_commit', 'on', true) else 'kept' end as durable
)
insert into "{schema}"."message_log_{stream}" (schema_version, codec, routing_key, message_key, headers, payload)
select $1, $2, m.routing_key, m.message_key, m.headers, m.payload
from x
cross join unnest($3::json[], $4::text[], $5::text[], $6::json[]) as m (payload, routing_key, message_key, headers)
where x.xid is not null and x.durable is not null
returning id
