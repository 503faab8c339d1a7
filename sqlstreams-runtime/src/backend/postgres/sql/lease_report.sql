-- sqlstreams: lease.report
-- $1 group, $2 presence, $3 tokens in use, $4 tokens with progress, $5 their handled intervals.
-- Owned but unlisted leases are given back, once no claim can still be on its way; listed ones that are
-- not answered were lost.
with asynchronous as materialized (
    select set_config('synchronous_commit', 'off', true) as setting
),
progress as (
    update "{schema}"."claim_lease_{stream}" l
    set done = n.done::int8multirange
    from unnest($4::uuid[], $5::text[]) as n (token, done)
    where l.token = n.token
),
freed as (
    update "{schema}"."claim_lease_{stream}"
    set presence_id = null
    where presence_id = $2 and consumer_group_id = $1 and token <> all($3)
        and claimed_at < clock_timestamp() - interval '10 seconds'
)
select l.token
from "{schema}"."claim_lease_{stream}" l, asynchronous a
where l.token = any($3) and a.setting is not null
