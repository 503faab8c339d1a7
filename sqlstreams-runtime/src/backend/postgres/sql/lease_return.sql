-- sqlstreams: lease.return
-- $1 tokens, $2 what needs no handler any more inside them; messages in trouble: $3 tokens, $4 ids, $5 versions, $6 keys,
-- $7 next, $8 wait in microseconds, $9 errors, $10 where their lanes end or null.
-- A dead letter that a replay's message fails beside goes on with its history.
-- A repeated call finds a lease without owner and changes nothing: its messages in trouble may be handled by now.
-- With lanes all of the leases go back or none: a lane that is written while somebody else has a lower range
-- would run past it.
with mine as materialized (
    select token from "{schema}"."claim_lease_{stream}"
    where token = any($1) and presence_id is not null
    order by token
    for update
),
back as (
    update "{schema}"."claim_lease_{stream}" l
    set presence_id = null, done = n.done::int8multirange
    from unnest($1::uuid[], $2::text[]) as n (token, done)
    where l.token = n.token and l.token in (select token from mine)
        and (num_nonnulls(variadic $10::bigint[]) = 0 or (select count(*) from mine) = cardinality($1))
    returning l.token, l.consumer_group_id, l.replay_until
),
clock as materialized (
    select clock_timestamp() as now
),
entry as materialized (
    select b.consumer_group_id, n.id, case n.next when 'dead' then 'dead' else 'ready' end, n.version, n.key,
        max(n.held_to) over (partition by n.key, n.held_to is null) as held_to,
        case n.next when 'return' then 0 else 1 end,
        case when n.next in ('retry', 'dead') then 1 else 0 end,
        case when n.next in ('retry', 'dead') then 1 else 0 end,
        case n.next when 'later' then 1 else 0 end,
        case n.next when 'dead' then null else c.now + n.wait * interval '1 microsecond' end,
        case when n.next in ('retry', 'dead') then c.now end,
        case n.next when 'dead' then c.now end,
        n.error, b.replay_until
    from back b
    join unnest(
        $3::uuid[], $4::bigint[], $5::integer[], $6::text[], $7::text[], $8::bigint[], $9::text[], $10::bigint[]
    ) as n (token, id, version, key, next, wait, error, held_to) on n.token = b.token
    cross join clock c
    where n.next <> 'done'
),
exception as (
    insert into "{schema}"."exception_queue_{stream}" as e (
        consumer_group_id, message_id, status, schema_version, message_key, held_to, attempts, failures, failures_total,
        delays, can_run_after, first_failed_at, died_at, last_error, replay_until
    )
    select * from entry where held_to is null
    on conflict (consumer_group_id, message_id) do update
    set status = excluded.status, schema_version = excluded.schema_version, attempts = e.attempts + excluded.attempts,
        failures = excluded.failures, failures_total = e.failures_total + excluded.failures_total, kills = 0,
        delays = e.delays + excluded.delays, can_run_after = excluded.can_run_after,
        first_failed_at = coalesce(e.first_failed_at, excluded.first_failed_at), died_at = excluded.died_at,
        last_error = coalesce(excluded.last_error, e.last_error), replay_until = excluded.replay_until,
        updated_at = clock_timestamp()
    where e.status = 'dead' and excluded.replay_until is not null
)
insert into "{schema}"."exception_queue_{stream}" as e (
    consumer_group_id, message_id, status, schema_version, message_key, held_to, attempts, failures, failures_total,
    delays, can_run_after, first_failed_at, died_at, last_error, replay_until
)
select distinct on (key) * from entry where held_to is not null order by key, id
on conflict (consumer_group_id, message_key) where held_to is not null
do update set held_to = greatest(e.held_to, excluded.held_to),
        replay_until = greatest(e.replay_until, excluded.replay_until), updated_at = clock_timestamp()
