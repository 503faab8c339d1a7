-- sqlstreams: letter.redrive
-- $1 group, $2 after this id, $3 limit, $4 the last id; what the error $5 contains, $6 begins with; $7 version;
-- died $8 since, $9 before, in microseconds; null does not restrict;
-- $10 due at random within so many microseconds, $11 now or null.
-- group.gate ran before, in the same transaction, so that this statement sees what retention has dropped. A letter
-- whose payload is gone stays dead. The policy, the attempts, the failures in total and the last error stay.
with clock as materialized (
    select coalesce(timestamptz 'epoch' + $11::bigint * interval '1 microsecond', clock_timestamp()) as now
),
found as materialized (
    select e.message_id
    from "{schema}"."exception_queue_{stream}" e
    where e.consumer_group_id = $1 and e.status = 'dead' and e.message_id > $2 and e.message_id <= $4
        and ($5::text is null or position($5 in coalesce(e.last_error, '')) > 0)
        and ($6::text is null or starts_with(coalesce(e.last_error, ''), $6))
        and ($7::integer is null or e.schema_version = $7)
        and ($8::bigint is null or e.died_at >= timestamptz 'epoch' + $8 * interval '1 microsecond')
        and ($9::bigint is null or e.died_at < timestamptz 'epoch' + $9 * interval '1 microsecond')
    order by e.message_id
    limit $3
    for update skip locked
),
stored as materialized (
    select f.message_id
    from found f
    left join lateral (
        select true as there from "{schema}"."message_log_{stream}" m where m.id = f.message_id limit 1
    ) l on true
    left join lateral (
        select true as there from "{schema}"."exception_payload_{stream}" m where l.there is null and m.message_id = f.message_id limit 1
    ) p on true
    where l.there or p.there
),
redriven as (
    update "{schema}"."exception_queue_{stream}" e
    set status = 'ready', failures = 0, kills = 0, redrives = e.redrives + 1, died_at = null,
        can_run_after = c.now + trunc(random() * $10::bigint) * interval '1 microsecond', updated_at = c.now
    from stored s, clock c
    where e.consumer_group_id = $1 and e.message_id = s.message_id
    returning e.message_id
)
select (select count(*) from found) as found, (select count(*) from redriven) as changed,
    (select max(message_id) from found) as last
