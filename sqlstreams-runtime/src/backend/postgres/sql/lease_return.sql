-- sqlstreams: lease.return
-- $1 tokens, $2 their handled intervals.
update "{schema}"."claim_lease_{stream}" l
set presence_id = null, done = n.done::int8multirange
from unnest($1::uuid[], $2::text[]) as n (token, done)
where l.token = n.token
