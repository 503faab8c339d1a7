-- sqlstreams: key.gate
-- Differs from postgres: one statement; without lower ranges of others it looks into no log.
-- $1 group; $2 JSON, one array a key: key, the low end of the range that asks; $3 leases of the caller, a JSON array.
select
    exists (
        select 1 from "{schema}exception_queue_{stream}" e
        where e.consumer_group_id = $1 and e.message_key = k.value ->> 0 and e.held_to is not null
    ) as laned,
    exists (
        select 1
        from "{schema}claim_lease_{stream}" l
        where l.consumer_group_id = $1 and l.low < k.value ->> 1
            and l.token not in (select unhex(value) from json_each($3))
            and exists (
                select 1 from "{schema}message_log_{stream}" m
                where m.message_key = k.value ->> 0 and m.id > l.low and m.id <= l.high
                    and (l.schema_version is null or m.schema_version = l.schema_version)
                    and not exists (
                        select 1 from json_each(l.done) d
                        where m.id > d.value ->> 0 and m.id <= d.value ->> 1
                    )
            )
    ) as busy
from json_each($2) k
order by k.key
