-- sqlstreams: lease.return
-- $1 JSON, one array a lease: token, handled intervals.
update "{schema}claim_lease_{stream}"
set presence_id = null, done = n.done
from (select unhex(value ->> 0) as token, value ->> 1 as done from json_each($1)) n
where "{schema}claim_lease_{stream}".token = n.token
