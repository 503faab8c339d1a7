-- sqlstreams: presence.renew
-- $1 id, $2 ttl in microseconds.
update "{schema}presence"
set expires_at = cast(round(unixepoch('subsec') * 1000000) as integer) + $2
where id = $1
