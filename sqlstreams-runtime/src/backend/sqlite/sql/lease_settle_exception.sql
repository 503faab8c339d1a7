-- sqlstreams: lease.settle_exception
-- $1 token; $2 JSON, one array an exception: id, version, key, next (done, retry, later, dead, return), wait in
-- microseconds, error, where its lane ends or null; $4 now in microseconds or null.
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
from "{schema}claim_lease_{stream}" l
cross join (select coalesce($4, cast(round(unixepoch('subsec') * 1000000) as integer)) as now) c
cross join (
    select value ->> 0 as id, value ->> 1 as version, value ->> 2 as key, value ->> 3 as next, value ->> 4 as wait,
        value ->> 5 as error, value ->> 6 as held_to
    from json_each($2)
) n
where l.token = $1 and n.next <> 'done'
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
