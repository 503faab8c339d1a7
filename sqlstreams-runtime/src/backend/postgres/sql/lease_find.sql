-- sqlstreams: lease.find
-- $1 token.
select token, low, high, schema_version, reclaims,
    array(select lower(d) - 1 from unnest(done) d) as done_low,
    array(select upper(d) - 1 from unnest(done) d) as done_high,
    replay_until
from "{schema}"."claim_lease_{stream}"
where token = $1
