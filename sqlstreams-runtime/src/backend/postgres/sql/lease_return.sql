-- sqlstreams: lease.return
-- $1 tokens, $2 what needs no handler any more inside them; messages in trouble: $3 tokens, $4 ids, $5 versions, $6 keys,
-- $7 next, $8 wait in microseconds, $9 errors.
-- A repeated call finds a lease without owner and changes nothing: its messages in trouble may be handled by now.
with back as (
    update "{schema}"."claim_lease_{stream}" l
    set presence_id = null, done = n.done::int8multirange
    from unnest($1::uuid[], $2::text[]) as n (token, done)
    where l.token = n.token and l.presence_id is not null
    returning l.token, l.consumer_group_id
),
clock as materialized (
    select clock_timestamp() as now
)
insert into "{schema}"."exception_queue_{stream}" (
    consumer_group_id, message_id, status, schema_version, message_key, attempts, failures, failures_total,
    delays, can_run_after, first_failed_at, died_at, last_error
)
select b.consumer_group_id, n.id, case n.next when 'dead' then 'dead' else 'ready' end, n.version, n.key,
    case n.next when 'return' then 0 else 1 end,
    case when n.next in ('retry', 'dead') then 1 else 0 end,
    case when n.next in ('retry', 'dead') then 1 else 0 end,
    case n.next when 'later' then 1 else 0 end,
    case n.next when 'dead' then null else c.now + n.wait * interval '1 microsecond' end,
    case when n.next in ('retry', 'dead') then c.now end,
    case n.next when 'dead' then c.now end,
    n.error
from back b
join unnest($3::uuid[], $4::bigint[], $5::integer[], $6::text[], $7::text[], $8::bigint[], $9::text[])
    as n (token, id, version, key, next, wait, error) on n.token = b.token
cross join clock c
where n.next <> 'done'
on conflict (consumer_group_id, message_id) do nothing
