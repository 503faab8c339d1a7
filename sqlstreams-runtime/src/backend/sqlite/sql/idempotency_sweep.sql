-- sqlstreams: idempotency.sweep
-- Differs from postgres: no held snapshot makes looking slow, so that no bound is needed.
-- $1 limit, $2 now in microseconds.
delete from "{schema}idempotency_key_{stream}"
where key in (
    select key
    from "{schema}idempotency_key_{stream}"
    where expires_at <= $2
    order by expires_at
    limit $1
)
returning expires_at
