-- sqlstreams: letter.redrive
-- Differs from postgres: letter.redrive_look answers, before it in the same transaction.
-- $1 group, $2 after this id, $3 limit, $4 the last id; what the error $5 contains, $6 begins with; $7 version;
-- died $8 since, $9 before, in microseconds; null does not restrict;
-- $10 due at random within so many microseconds, $11 now or null.
-- A letter whose payload is gone stays dead. The policy, the attempts, the failures in total and the last error stay.
update "{schema}exception_queue_{stream}"
set status = 'ready', failures = 0, kills = 0, redrives = redrives + 1, died_at = null,
    can_run_after = coalesce($11, cast(round(unixepoch('subsec') * 1000000) as integer)) + abs(random() % max(1, $10)),
    updated_at = coalesce($11, cast(round(unixepoch('subsec') * 1000000) as integer))
where consumer_group_id = $1 and message_id in (
    select f.message_id
    from (
        select e.message_id
        from "{schema}exception_queue_{stream}" e indexed by "{schema}exception_queue_{stream}_dead"
        where e.consumer_group_id = $1 and e.status = 'dead' and e.message_id > $2 and e.message_id <= $4
            and ($5 is null or instr(coalesce(e.last_error, ''), $5) > 0)
            and ($6 is null or substr(coalesce(e.last_error, ''), 1, length($6)) = $6)
            and ($7 is null or e.schema_version = $7)
            and ($8 is null or e.died_at >= $8)
            and ($9 is null or e.died_at < $9)
        order by e.message_id
        limit $3
    ) f
    where (
        exists (select 1 from "{schema}message_log_{stream}" m where m.id = f.message_id)
        or exists (select 1 from "{schema}exception_payload_{stream}" m where m.message_id = f.message_id)
    )
)
