-- sqlstreams: lease.reclaim
-- $1 group, $2 new token, $3 presence.
-- Durable: the number of lost owners bounds how often a range that kills its process runs.
update "{schema}claim_lease_{stream}"
set token = $2,
    presence_id = $3,
    reclaims = reclaims + (presence_id is not null),
    claimed_at = cast(round(unixepoch('subsec') * 1000000) as integer)
where lid = (
    select l.lid
    from "{schema}claim_lease_{stream}" l
    where l.consumer_group_id = $1
        and not exists (
            select 1 from "{schema}presence" p
            where p.id = l.presence_id and p.expires_at >= cast(round(unixepoch('subsec') * 1000000) as integer)
        )
    order by l.low
    limit 1
)
returning token, low, high, schema_version, reclaims, done, replay_until
