-- sqlstreams: delayed.cancel_key
-- $1 delayed id. What the idempotency key stood for does not happen.
delete from "{schema}idempotency_key_{stream}"
where key = (select idempotency_key from "{schema}delayed_message_{stream}" where id = $1) and delayed_id = $1
