-- sqlstreams: lease.report_progress
-- $4 JSON, one array a lease: token, handled intervals.
update "{schema}claim_lease_{stream}"
set done = n.done
from (select unhex(value ->> 0) as token, value ->> 1 as done from json_each($4)) n
where "{schema}claim_lease_{stream}".token = n.token
