-- sqlstreams: presence.renew
-- $1 id, $2 ttl in microseconds. Not now(): it predates a lock wait.
update "{schema}".presence
set expires_at = clock_timestamp() + $2 * interval '1 microsecond'
where id = $1
