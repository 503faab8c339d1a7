-- sqlstreams: message.produce_with_first
-- $1 message id or null, $2 delayed id or null. The payload that was produced first.
select coalesce(payload, payload_bytes) as payload from "{schema}message_log_{stream}" where id = $1
union all
select coalesce(payload, payload_bytes) from "{schema}delayed_message_{stream}" where id = $2
