-- sqlstreams: lease.return_exception
-- $2 JSON, one array a message in trouble: token, id, version, key, next, wait in microseconds, error.
insert into "{schema}exception_queue_{stream}" (
    consumer_group_id, message_id, status, schema_version, message_key, attempts, failures, failures_total,
    delays, can_run_after, first_failed_at, died_at, last_error
)
select l.consumer_group_id, n.id, iif(n.next = 'dead', 'dead', 'ready'), n.version, n.key,
    n.next <> 'return',
    n.next in ('retry', 'dead'),
    n.next in ('retry', 'dead'),
    n.next = 'later',
    iif(n.next = 'dead', null, c.now + n.wait),
    iif(n.next in ('retry', 'dead'), c.now, null),
    iif(n.next = 'dead', c.now, null),
    n.error
from (
    select unhex(value ->> 0) as token, value ->> 1 as id, value ->> 2 as version, value ->> 3 as key,
        value ->> 4 as next, value ->> 5 as wait, value ->> 6 as error
    from json_each($2)
) n
join "{schema}claim_lease_{stream}" l on l.token = n.token and l.presence_id is not null
cross join (select cast(round(unixepoch('subsec') * 1000000) as integer) as now) c
where true
on conflict (consumer_group_id, message_id) do nothing
