-- sqlstreams: lease.find
-- $1 token.
select token, low, high, schema_version, reclaims, done, replay_until
from "{schema}claim_lease_{stream}"
where token = $1
