-- sqlstreams: key.gate
-- $1 group, $2 keys, $3 the low end of the range that asks for each, $4 leases of the caller; $5 and $6 where lower
-- ranges of others begin and end: parameters, so that only the partitions between them are opened.
-- Lane and range in one snapshot: a range that ends between two would hide the lane that it leaves.
select
    exists (
        select from "{schema}"."exception_queue_{stream}" e
        where e.consumer_group_id = $1 and e.message_key = k.key and e.held_to is not null
    ) as laned,
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
    ) as busy
from unnest($2::text[], $3::bigint[]) with ordinality as k (key, low, number)
order by k.number
