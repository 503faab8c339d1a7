-- sqlstreams: key.gate
-- Differs from postgres: one statement; without lower ranges of others it looks into no log.
-- $1 group; $2 JSON, one array an ask: key, the low end of the range or the ticket of the message that asks, the
-- message or null; $3 leases of the caller, a JSON array. Of two messages with the same ticket the one that got it first goes first.
select
    exists (
        select 1 from "{schema}exception_queue_{stream}" e
        where e.consumer_group_id = $1 and e.message_key = k.value ->> 0 and e.held_to is not null
    ) as laned,
    exists (
        select 1 from "{schema}exception_queue_{stream}" e
        where e.consumer_group_id = $1 and e.message_key = k.value ->> 0 and e.held_to is not null
            and e.status = 'inflight'
    ) as lane_runs,
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
    ) or exists (
        select 1 from "{schema}exception_queue_{stream}" e
        where e.consumer_group_id = $1 and e.message_key = k.value ->> 0 and e.status = 'inflight'
            and e.message_id is not k.value ->> 2
            and (
                e.ticket < k.value ->> 1
                or (e.ticket = k.value ->> 1 and (k.value ->> 2 is null or e.ticket_number < (
                    select own.ticket_number from "{schema}exception_queue_{stream}" own
                    where own.consumer_group_id = $1 and own.message_id = k.value ->> 2
                )))
            )
    ) as busy,
    exists (
        select 1 from "{schema}exception_queue_{stream}" e
        where e.consumer_group_id = $1 and e.message_key = k.value ->> 0 and e.status = 'inflight'
            and e.ticket is not null and e.message_id is not k.value ->> 2
    ) as ticketed
from json_each($2) k
order by k.key
