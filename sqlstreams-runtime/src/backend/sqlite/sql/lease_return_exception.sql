-- sqlstreams: lease.return_exception
-- $1 leases as in lease.return; $2 JSON, one array a message in trouble: token, id, version, key, next, wait in
-- microseconds, error, where its lane ends or null. With lanes all of the leases go back or none: a lane that is
-- written while somebody else has a lower range would run past it.
insert into "{schema}exception_queue_{stream}" (
    consumer_group_id, message_id, status, schema_version, message_key, attempts, failures, failures_total,
    delays, can_run_after, first_failed_at, died_at, last_error, held_to, replay_until
)
select l.consumer_group_id, n.id, iif(n.next = 'dead', 'dead', 'ready'), n.version, n.key,
    n.next <> 'return',
    n.next in ('retry', 'dead'),
    n.next in ('retry', 'dead'),
    n.next = 'later',
    iif(n.next = 'dead', null, c.now + n.wait),
    iif(n.next in ('retry', 'dead'), c.now, null),
    iif(n.next = 'dead', c.now, null),
    n.error,
    n.held_to,
    l.replay_until
from (
    select unhex(value ->> 0) as token, value ->> 1 as id, value ->> 2 as version, value ->> 3 as key,
        value ->> 4 as next, value ->> 5 as wait, value ->> 6 as error, value ->> 7 as held_to
    from json_each($2)
) n
join "{schema}claim_lease_{stream}" l on l.token = n.token and l.presence_id is not null
cross join (select cast(round(unixepoch('subsec') * 1000000) as integer) as now) c
where not exists (select 1 from json_each($2) where value ->> 7 is not null) or not exists (
    select 1 from json_each($1) t
    where not exists (
        select 1 from "{schema}claim_lease_{stream}" m
        where m.token = unhex(t.value ->> 0) and m.presence_id is not null
    )
)
order by n.id
on conflict (consumer_group_id, message_key) where held_to is not null
do update set held_to = max(held_to, excluded.held_to),
    replay_until = coalesce(max(replay_until, excluded.replay_until), replay_until, excluded.replay_until),
    updated_at = excluded.updated_at
on conflict (consumer_group_id, message_id) do update
set status = excluded.status, schema_version = excluded.schema_version, attempts = attempts + excluded.attempts,
    failures = excluded.failures, failures_total = failures_total + excluded.failures_total, kills = 0,
    delays = delays + excluded.delays, can_run_after = excluded.can_run_after,
    first_failed_at = coalesce(first_failed_at, excluded.first_failed_at), died_at = excluded.died_at,
    last_error = coalesce(excluded.last_error, last_error), replay_until = excluded.replay_until,
    updated_at = excluded.updated_at
where status = 'dead' and excluded.replay_until is not null
