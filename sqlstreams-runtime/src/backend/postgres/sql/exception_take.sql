-- sqlstreams: exception.take
-- $1 group, $2 limit, $3 token, $4 presence, $5 versions, $6 lost owners until death, $7 now or null, $8 how many
-- of those that lost an owner before: they are suspects, and only one that runs alone is known to be the killer;
-- $9 due since, in microseconds, or null: a held snapshot keeps the index entries of all that was due before.
-- $10 also look for owners whose presence row is gone.
-- The time is a scalar subquery and not a join, so that the index gives rows in order and the scan ends at the limit.
-- Durable: a message that kills its process is counted before it runs again. A lane is not buried here but handed
-- out: whoever takes it knows which of the key's messages comes next.
with clock as materialized (
    select coalesce(timestamptz 'epoch' + $7::bigint * interval '1 microsecond', clock_timestamp()) as now
),
-- A group that is drained before it is rewound takes nothing.
turn as materialized (
    select case when c.paused_until > clock_timestamp() then 0 else 1 end as open
    from (values (1)) one
    left join lateral (
        select paused_until from "{schema}"."consumer_group_cursor_{stream}"
        where consumer_group_id = $1
        order by seq desc
        limit 1
    ) c on true
),
-- Found through the expired presences: an index of what is being run keeps, under a held snapshot, an entry for each
-- run that ever was. Subqueries with an offset are looked up one by one, whatever the planner believes.
candidate as materialized (
    select e.message_id, e.token, e.kills, e.held_to is not null as lane
    from "{schema}"."exception_queue_{stream}" e
    where e.consumer_group_id = $1 and e.status = 'inflight' and e.presence_id is null and e.schema_version = any($5)
    union all
    select e.message_id, e.token, e.kills + 1, e.held_to is not null
    from "{schema}".presence p
    cross join lateral (
        select message_id, token, kills, held_to
        from "{schema}"."exception_queue_{stream}"
        where presence_id = p.id and status = 'inflight' and consumer_group_id = $1 and schema_version = any($5)
        offset 0
    ) e
    where p.expires_at < clock_timestamp()
    union all
    select e.message_id, e.token, e.kills + 1, e.held_to is not null
    from "{schema}"."exception_queue_{stream}" e
    where $10 and e.consumer_group_id = $1 and e.status = 'inflight' and e.schema_version = any($5)
        and e.presence_id is not null
        and not exists (select from "{schema}".presence p where p.id = e.presence_id)
    order by message_id
    limit 1000
),
-- What another process took meanwhile has another token and drops out at the lock.
lost as materialized (
    select c.message_id, c.kills, c.lane
    from candidate c
    cross join lateral (
        select message_id
        from "{schema}"."exception_queue_{stream}"
        where consumer_group_id = $1 and message_id = c.message_id and token is not distinct from c.token
        for update skip locked
    ) e
),
due_suspect as materialized (
    select e.message_id, e.kills, e.held_to is not null as lane
    from "{schema}"."exception_queue_{stream}" e
    where e.consumer_group_id = $1 and e.status = 'ready' and e.can_run_after <= (select now from clock) and e.kills > 0
        and e.schema_version = any($5)
    order by e.can_run_after
    limit $8 * (select open from turn)
    for update of e skip locked
),
suspect as materialized (
    select message_id, kills
    from (select * from lost where kills < $6 or lane union all select * from due_suspect) s
    order by message_id
    limit $8 * (select open from turn)
),
due as materialized (
    select e.message_id, e.kills
    from "{schema}"."exception_queue_{stream}" e
    where e.consumer_group_id = $1 and e.status = 'ready' and e.can_run_after <= (select now from clock) and e.kills = 0
        and e.can_run_after >= coalesce(timestamptz 'epoch' + $9::bigint * interval '1 microsecond', '-infinity')
        and e.schema_version = any($5)
    order by e.can_run_after
    limit $2 * (select open from turn)
    for update of e skip locked
),
buried as (
    update "{schema}"."exception_queue_{stream}" e
    set status = 'dead', kills = l.kills, died_at = c.now, updated_at = c.now, token = null, presence_id = null,
        last_error = 'the process that handled it was lost ' || l.kills || ' times'
    from lost l, clock c
    where e.consumer_group_id = $1 and e.message_id = l.message_id and l.kills >= $6 and not l.lane
),
waiting as (
    update "{schema}"."exception_queue_{stream}" e
    set status = 'ready', kills = l.kills, can_run_after = c.now, updated_at = c.now, token = null, presence_id = null
    from lost l, clock c
    where e.consumer_group_id = $1 and e.message_id = l.message_id and (l.kills < $6 or l.lane)
        and not exists (select from suspect s where s.message_id = l.message_id)
),
taken as (
    update "{schema}"."exception_queue_{stream}" e
    set status = 'inflight', kills = t.kills, token = $3, presence_id = $4, updated_at = c.now
    from (select * from suspect union all select * from due) t, clock c
    where e.consumer_group_id = $1 and e.message_id = t.message_id
    returning e.message_id, e.attempts, e.failures, e.delays, e.kills, e.can_run_after, e.held_to, e.message_key,
        e.replay_until
)
select t.message_id, t.attempts, t.failures, t.delays, t.kills, t.can_run_after, t.held_to, t.message_key as lane_key,
    t.replay_until,
    coalesce(m.id, p.message_id) as id,
    coalesce(m.produced_at, m.created_at, p.produced_at, p.created_at) as created_at,
    coalesce(m.schema_version, p.schema_version) as schema_version, coalesce(m.codec, p.codec) as codec,
    coalesce(m.routing_key, p.routing_key) as routing_key, coalesce(m.message_key, p.message_key) as message_key,
    coalesce(m.headers, p.headers) as headers, coalesce(m.payload, p.payload) as payload,
    coalesce(m.payload_bytes, p.payload_bytes) as payload_bytes,
    coalesce(m.scheduled_at, p.scheduled_at) as scheduled_at
from taken t
left join "{schema}"."message_log_{stream}" m on m.id = t.message_id
left join lateral (
    select * from "{schema}"."exception_payload_{stream}" where m.id is null and message_id = t.message_id offset 0
) p on true
order by t.message_id
