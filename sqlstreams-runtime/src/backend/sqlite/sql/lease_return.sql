-- sqlstreams: lease.return
-- Comes after lease.return_exception, which finds the group through the lease.
-- $1 JSON, one array a lease: token, what needs no handler any more inside it.
-- A repeated call finds a lease without owner and changes nothing: its messages in trouble may be handled by now.
update "{schema}claim_lease_{stream}"
set presence_id = null, done = n.done
from (select unhex(value ->> 0) as token, value ->> 1 as done from json_each($1)) n
where "{schema}claim_lease_{stream}".token = n.token and "{schema}claim_lease_{stream}".presence_id is not null
