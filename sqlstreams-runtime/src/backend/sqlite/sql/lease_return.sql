-- sqlstreams: lease.return
-- Comes after lease.return_exception, which finds the group through the lease.
-- $1 JSON, one array a lease: token, what needs no handler any more inside it; $2 as there.
-- A repeated call finds a lease without owner and changes nothing: its messages in trouble may be handled by now.
update "{schema}claim_lease_{stream}"
set presence_id = null, done = n.done
from (select unhex(value ->> 0) as token, value ->> 1 as done from json_each($1)) n
where "{schema}claim_lease_{stream}".token = n.token and "{schema}claim_lease_{stream}".presence_id is not null
    and (
        not exists (select 1 from json_each($2) where value ->> 7 is not null)
        or not exists (
            select 1 from json_each($1) t
            where not exists (
                select 1 from "{schema}claim_lease_{stream}" m
                where m.token = unhex(t.value ->> 0) and m.presence_id is not null
            )
        )
    )
