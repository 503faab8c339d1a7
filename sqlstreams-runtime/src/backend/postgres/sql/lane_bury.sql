-- sqlstreams: lane.bury
-- $1 group, $2 token, $3 the message that the lane stands at, $4 its successor or null, $5 the successor's version,
-- $6 where the lane ends as far as the caller knows, $7 error, $8 now or null. Durable.
-- The insert draws its row from the update: the key's old lane has to be gone when the new one comes.
with clock as materialized (
    select coalesce(timestamptz 'epoch' + $8::bigint * interval '1 microsecond', clock_timestamp()) as now
),
lane as materialized (
    select e.message_id, e.message_key, e.held_to
    from "{schema}"."exception_queue_{stream}" e
    where e.consumer_group_id = $1 and e.message_id = $3 and e.token = $2
        and e.held_to is not null and ($4::bigint is not null or e.held_to = $6)
    for update
),
dead as (
    update "{schema}"."exception_queue_{stream}" e
    set status = 'dead', held_to = null, attempts = e.attempts + 1, failures = e.failures + 1,
        failures_total = e.failures_total + 1, can_run_after = null,
        first_failed_at = coalesce(e.first_failed_at, c.now), died_at = c.now, last_error = $7,
        token = null, presence_id = null, updated_at = c.now
    from lane l, clock c
    where e.consumer_group_id = $1 and e.message_id = l.message_id
    returning l.message_key, l.held_to, e.replay_until, c.now
),
successor as (
    insert into "{schema}"."exception_queue_{stream}" (
        consumer_group_id, message_id, status, schema_version, message_key, held_to, replay_until, can_run_after
    )
    select $1, $4, 'ready', $5, message_key, held_to, replay_until, now
    from dead
    where $4 is not null
)
select count(*) as buried from dead
