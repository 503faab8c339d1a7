-- sqlstreams: message.produce_with_find
-- $1 idempotency keys. What was produced with them, in a snapshot later than that of message.produce_with.
select key, message_id, delayed_id, payload_hash
from "{schema}"."idempotency_key_{stream}"
where key = any($1)
