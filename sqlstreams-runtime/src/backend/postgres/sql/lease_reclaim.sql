-- sqlstreams: lease.reclaim
-- $1 group, $2 new token, $3 presence, $4 also look for owners whose presence row is gone.
-- Candidates come from the expired presences, so that a table full of dead rows is not walked each second.
-- A lease that another process took meanwhile has another token and drops out at the lock.
-- Durable: the number of lost owners bounds how often a range that kills its process runs.
with candidate as materialized (
    select token from "{schema}"."claim_lease_{stream}"
    where consumer_group_id = $1 and presence_id is null
    union all
    select l.token
    from "{schema}".presence p
    join "{schema}"."claim_lease_{stream}" l on l.presence_id = p.id
    where p.expires_at < clock_timestamp() and l.consumer_group_id = $1
    union all
    select l.token from "{schema}"."claim_lease_{stream}" l
    where $4 and l.consumer_group_id = $1
        and not exists (select from "{schema}".presence p where p.id = l.presence_id)
),
lost as materialized (
    select token, presence_id from "{schema}"."claim_lease_{stream}"
    where token in (select token from candidate)
    order by low
    limit 1
    for update skip locked
)
update "{schema}"."claim_lease_{stream}" l
set token = $2,
    presence_id = $3,
    reclaims = l.reclaims + case when lost.presence_id is null then 0 else 1 end,
    claimed_at = clock_timestamp()
from lost
where l.token = lost.token
returning l.token, l.low, l.high, l.schema_version, l.reclaims,
    array(select lower(d) - 1 from unnest(l.done) d) as done_low,
    array(select upper(d) - 1 from unnest(l.done) d) as done_high,
    l.replay_until
