-- sqlstreams: presence.leave
-- $1 id. The row stays, expired, so that what the process still owns is found through it.
update "{schema}presence"
set expires_at = 0
where id = $1
