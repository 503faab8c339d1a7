-- sqlstreams: delayed.cancel
-- Differs from postgres: delayed.cancel_key has freed the idempotency key, in the same transaction. Also used in the
-- caller's transaction.
-- $1 delayed id.
delete from "{schema}delayed_message_{stream}"
where id = $1
returning id
