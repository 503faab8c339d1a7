-- sqlstreams: key.gate_look
-- $1 group, $2 keys, $3 highest low end of those who ask, $4 leases of the caller.
-- The keys that have a lane, those whose lane runs, those that have a ticket, and where lower ranges of others begin and
-- end, as of one snapshot. Without such ranges and tickets no key is busy, and key.gate is not asked.
select
    array(
        select k.key
        from unnest($2::text[]) as k (key)
        where exists (
            select from "{schema}"."exception_queue_{stream}" e
            where e.consumer_group_id = $1 and e.message_key = k.key and e.held_to is not null
        )
    ) as laned,
    array(
        select k.key
        from unnest($2::text[]) as k (key)
        where exists (
            select from "{schema}"."exception_queue_{stream}" e
            where e.consumer_group_id = $1 and e.message_key = k.key and e.held_to is not null and e.status = 'inflight'
        )
    ) as lane_runs,
    array(
        select k.key
        from unnest($2::text[]) as k (key)
        where exists (
            select from "{schema}"."exception_queue_{stream}" e
            where e.consumer_group_id = $1 and e.message_key = k.key and e.status = 'inflight' and e.ticket is not null
        )
    ) as ticketed,
    min(l.low) as low,
    max(l.high) as high
from "{schema}"."claim_lease_{stream}" l
where l.consumer_group_id = $1 and l.low < $3 and l.token <> all($4)
