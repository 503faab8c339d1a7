-- sqlstreams: message.produce_in
-- As message.produce, in the caller's own transaction: its durability is the caller's.
with x as materialized (
    select pg_current_xact_id() as xid
)
insert into "{schema}"."message_log_{stream}" (schema_version, codec, routing_key, message_key, headers, payload)
select $1, $2, m.routing_key, m.message_key, m.headers, m.payload
from x
cross join unnest($3::json[], $4::text[], $5::text[], $6::json[]) as m (payload, routing_key, message_key, headers)
where x.xid is not null
returning id
