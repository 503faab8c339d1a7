-- sqlstreams: exception.take
-- $1 group, $2 limit, $3 token, $4 presence, $5 versions, $6 lost owners until death, $7 now or null, $8 how many
-- of those that lost an owner before: they are suspects, and only one that runs alone is known to be the killer.
-- Durable: a message that kills its process is counted before it runs again.
with clock as materialized (
    select coalesce(timestamptz 'epoch' + $7::bigint * interval '1 microsecond', clock_timestamp()) as now
),
lost as materialized (
    select e.message_id, e.kills + case when e.presence_id is null then 0 else 1 end as kills
    from "{schema}"."exception_queue_{stream}" e
    where e.consumer_group_id = $1 and e.status = 'inflight' and e.schema_version = any($5)
        and not exists (
            select from "{schema}".presence p
            where p.id = e.presence_id and p.expires_at >= clock_timestamp()
        )
    order by e.message_id
    limit 1000
    for update skip locked
),
due_suspect as materialized (
    select e.message_id, e.kills
    from "{schema}"."exception_queue_{stream}" e, clock c
    where e.consumer_group_id = $1 and e.status = 'ready' and e.can_run_after <= c.now and e.kills > 0
        and e.schema_version = any($5)
    order by e.can_run_after
    limit $8
    for update of e skip locked
),
suspect as materialized (
    select message_id, kills
    from (select * from lost where kills < $6 union all select * from due_suspect) s
    order by message_id
    limit $8
),
due as materialized (
    select e.message_id, e.kills
    from "{schema}"."exception_queue_{stream}" e, clock c
    where e.consumer_group_id = $1 and e.status = 'ready' and e.can_run_after <= c.now and e.kills = 0
        and e.schema_version = any($5)
    order by e.can_run_after
    limit $2
    for update of e skip locked
),
buried as (
    update "{schema}"."exception_queue_{stream}" e
    set status = 'dead', kills = l.kills, died_at = c.now, updated_at = c.now, token = null, presence_id = null,
        last_error = 'the process that handled it was lost ' || l.kills || ' times'
    from lost l, clock c
    where e.consumer_group_id = $1 and e.message_id = l.message_id and l.kills >= $6
),
waiting as (
    update "{schema}"."exception_queue_{stream}" e
    set status = 'ready', kills = l.kills, can_run_after = c.now, updated_at = c.now, token = null, presence_id = null
    from lost l, clock c
    where e.consumer_group_id = $1 and e.message_id = l.message_id and l.kills < $6
        and not exists (select from suspect s where s.message_id = l.message_id)
),
taken as (
    update "{schema}"."exception_queue_{stream}" e
    set status = 'inflight', kills = t.kills, token = $3, presence_id = $4, updated_at = c.now
    from (select * from suspect union all select * from due) t, clock c
    where e.consumer_group_id = $1 and e.message_id = t.message_id
    returning e.message_id, e.attempts, e.failures, e.delays, e.kills
)
select t.message_id, t.attempts, t.failures, t.delays, t.kills,
    m.id, coalesce(m.produced_at, m.created_at) as created_at, m.schema_version, m.codec, m.routing_key, m.message_key,
    m.headers, m.payload, m.payload_bytes, m.scheduled_at
from taken t
left join "{schema}"."message_log_{stream}" m on m.id = t.message_id
order by t.message_id
