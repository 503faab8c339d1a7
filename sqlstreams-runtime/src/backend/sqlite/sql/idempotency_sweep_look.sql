-- sqlstreams: idempotency.sweep_look
-- $1 now in microseconds. Asked outside any transaction.
select exists (select 1 from "{schema}idempotency_key_{stream}" where expires_at <= $1) as found
