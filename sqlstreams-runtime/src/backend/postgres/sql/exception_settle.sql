-- sqlstreams: exception.settle
-- $1 group, $2 token, $3 ids, $4 next (done, retry, later, dead, return), $5 wait in microseconds, $6 errors,
-- $7 now or null, $8 outcomes to log. Rows that another owner took are left alone. Answers the ids of the others.
with clock as materialized (
    select coalesce(timestamptz 'epoch' + $7::bigint * interval '1 microsecond', clock_timestamp()) as now
),
outcome as materialized (
    select * from unnest($3::bigint[], $4::text[], $5::bigint[], $6::text[]) as n (id, next, wait, error)
),
handled as (
    delete from "{schema}"."exception_queue_{stream}" e
    using outcome n
    where e.consumer_group_id = $1 and e.message_id = n.id and e.token = $2 and n.next = 'done'
    returning e.message_id, e.attempts + 1 as attempt
),
again as (
    update "{schema}"."exception_queue_{stream}" e
    set status = case n.next when 'dead' then 'dead' else 'ready' end,
        attempts = e.attempts + case n.next when 'return' then 0 else 1 end,
        failures = e.failures + case when n.next in ('retry', 'dead') then 1 else 0 end,
        failures_total = e.failures_total + case when n.next in ('retry', 'dead') then 1 else 0 end,
        delays = e.delays + case n.next when 'later' then 1 else 0 end,
        can_run_after = case n.next when 'dead' then null else c.now + n.wait * interval '1 microsecond' end,
        first_failed_at = case when n.next in ('retry', 'dead') then coalesce(e.first_failed_at, c.now) else e.first_failed_at end,
        died_at = case n.next when 'dead' then c.now end,
        last_error = coalesce(n.error, e.last_error),
        token = null,
        presence_id = null,
        updated_at = c.now
    from outcome n, clock c
    where e.consumer_group_id = $1 and e.message_id = n.id and e.token = $2 and n.next <> 'done'
    returning e.message_id, e.attempts as attempt
),
settled as (
    select message_id, attempt from handled
    union all
    select message_id, attempt from again
),
logged as (
    insert into "{schema}"."delivery_log_{stream}" (consumer_group_id, message_id, attempt, status, error, attempted_at)
    select $1, s.message_id, s.attempt, n.next, n.error, c.now
    from settled s
    join outcome n on n.id = s.message_id, clock c
    where n.next = any($8::text[])
)
select message_id from settled
