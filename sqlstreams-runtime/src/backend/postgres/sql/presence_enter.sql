-- sqlstreams: presence.enter
-- $1 id, $2 build, $3 process, $4 readable, $5 ttl in microseconds.
insert into "{schema}".presence (id, build, process, readable, expires_at)
values ($1, $2, $3, $4::json, clock_timestamp() + $5 * interval '1 microsecond')
on conflict (id) do update set expires_at = excluded.expires_at, readable = excluded.readable
