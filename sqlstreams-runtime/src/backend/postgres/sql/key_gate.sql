-- sqlstreams: key.gate
-- $1 group, $2 keys, $3 the low end of the range that asks for each, or the ticket of the message that asks, $4 leases
-- of the caller; $5 and $6 where lower ranges of others begin and end: parameters, so that only the partitions between
-- them are opened; $7 messages that ask, or null.
-- Lane and range in one snapshot: a range that ends between two would hide the lane that it leaves. Of two messages with
-- the same ticket the one that got it first goes first.
select
    exists (
        select from "{schema}"."exception_queue_{stream}" e
        where e.consumer_group_id = $1 and e.message_key = k.key and e.held_to is not null
    ) as laned,
    exists (
        select from "{schema}"."exception_queue_{stream}" e
        where e.consumer_group_id = $1 and e.message_key = k.key and e.held_to is not null and e.status = 'inflight'
    ) as lane_runs,
    exists (
        select
        from "{schema}"."claim_lease_{stream}" l
        cross join lateral (
            select from "{schema}"."message_log_{stream}" m
            where m.message_key = k.key
                and m.id > $5 and m.id <= $6
                and m.id > l.low and m.id <= l.high
                and not l.done @> m.id
                and (l.schema_version is null or m.schema_version = l.schema_version)
            limit 1
        ) unfinished
        where l.consumer_group_id = $1 and l.low < k.low and l.token <> all($4)
    ) or exists (
        select from "{schema}"."exception_queue_{stream}" e
        where e.consumer_group_id = $1 and e.message_key = k.key and e.status = 'inflight'
            and e.message_id is distinct from k.message
            and (e.ticket < k.low or (e.ticket = k.low and (k.message is null or e.ticket_number < (
                select own.ticket_number from "{schema}"."exception_queue_{stream}" own
                where own.consumer_group_id = $1 and own.message_id = k.message
            ))))
    ) as busy,
    exists (
        select from "{schema}"."exception_queue_{stream}" e
        where e.consumer_group_id = $1 and e.message_key = k.key and e.status = 'inflight' and e.ticket is not null
            and e.message_id is distinct from k.message
    ) as ticketed
from unnest($2::text[], $3::bigint[], $7::bigint[]) with ordinality as k (key, low, message, number)
order by k.number
