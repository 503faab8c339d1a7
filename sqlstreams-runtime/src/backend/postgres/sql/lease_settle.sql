-- sqlstreams: lease.settle
-- $1 token; exceptions: $2 ids, $3 versions, $4 keys, $5 next (retry, later, dead, return), $6 wait in microseconds,
-- $7 errors; parked: $8 versions, $9 lows, $10 highs; $11 now in microseconds or null; $12 where the exceptions' lanes
-- end, or null; $13 outcomes to log, $14 handled messages to log.
-- In a replay a dead letter that was kept goes on with its history when its message fails again, and goes when it was
-- handled.
-- The lease goes first: whoever lost it changes nothing. Durable. A key's lane that is there already is extended;
-- in the order of the keys, since others extend theirs at the same time.
with gone as (
    delete from "{schema}"."claim_lease_{stream}"
    where token = $1
    returning consumer_group_id, replay_until
),
clock as materialized (
    select coalesce(timestamptz 'epoch' + $11::bigint * interval '1 microsecond', clock_timestamp()) as now
),
entry as materialized (
    select g.consumer_group_id, n.id, case n.next when 'dead' then 'dead' else 'ready' end, n.version, n.key, n.held_to,
        case n.next when 'return' then 0 else 1 end,
        case when n.next in ('retry', 'dead') then 1 else 0 end,
        case when n.next in ('retry', 'dead') then 1 else 0 end,
        case n.next when 'later' then 1 else 0 end,
        case n.next when 'dead' then null else c.now + n.wait * interval '1 microsecond' end,
        case when n.next in ('retry', 'dead') then c.now end,
        case n.next when 'dead' then c.now end,
        n.error, g.replay_until
    from gone g, clock c,
        unnest($2::bigint[], $3::integer[], $4::text[], $5::text[], $6::bigint[], $7::text[], $12::bigint[])
            as n (id, version, key, next, wait, error, held_to)
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
),
lane as (
    insert into "{schema}"."exception_queue_{stream}" as e (
        consumer_group_id, message_id, status, schema_version, message_key, held_to, attempts, failures, failures_total,
        delays, can_run_after, first_failed_at, died_at, last_error, replay_until
    )
    select * from entry where held_to is not null order by key
    on conflict (consumer_group_id, message_key) where held_to is not null
    do update set held_to = greatest(e.held_to, excluded.held_to),
        replay_until = greatest(e.replay_until, excluded.replay_until), updated_at = clock_timestamp()
),
extended as (
    update "{schema}"."parked_range_{stream}" p
    set high = n.high, replay_until = greatest(p.replay_until, g.replay_until), updated_at = c.now
    from gone g, clock c, unnest($8::integer[], $9::bigint[], $10::bigint[]) as n (version, low, high)
    where p.consumer_group_id = g.consumer_group_id and p.schema_version = n.version and p.high = n.low
    returning n.version, n.low
),
parked as (
    insert into "{schema}"."parked_range_{stream}" (consumer_group_id, schema_version, low, high, replay_until)
    select g.consumer_group_id, n.version, n.low, n.high, g.replay_until
    from gone g, unnest($8::integer[], $9::bigint[], $10::bigint[]) as n (version, low, high)
    where not exists (select from extended e where e.version = n.version and e.low = n.low)
),
mended as (
    delete from "{schema}"."exception_queue_{stream}" e
    using gone g, unnest($14::bigint[]) as n (id)
    where g.replay_until is not null
        and e.consumer_group_id = g.consumer_group_id and e.message_id = n.id and e.status = 'dead'
),
logged as (
    insert into "{schema}"."delivery_log_{stream}" (consumer_group_id, message_id, attempt, status, error, attempted_at)
    select g.consumer_group_id, n.id, 1, n.next, n.error, c.now
    from gone g, clock c, (
        select id, next, error from unnest($2::bigint[], $5::text[], $7::text[]) as n (id, next, error)
        union all
        select id, 'done', null from unnest($14::bigint[]) as n (id)
    ) n
    where n.next = any($13::text[])
)
select count(*) as gone from gone
