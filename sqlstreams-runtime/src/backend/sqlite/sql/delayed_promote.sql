-- sqlstreams: delayed.promote
-- Differs from postgres: several statements in one immediate transaction: this one, delayed.promote_key and
-- delayed.promote_remove. No held snapshot makes looking slow, so that no bound is needed.
-- $1 limit, $2 now in microseconds.
insert into "{schema}message_log_{stream}" (
    created_at, schema_version, codec, routing_key, message_key, headers, payload, payload_bytes, produced_at, scheduled_at
)
select $2, schema_version, codec, routing_key, message_key, headers, payload, payload_bytes, created_at, deliver_at
from "{schema}delayed_message_{stream}"
where deliver_at <= $2
order by deliver_at, id
limit $1
