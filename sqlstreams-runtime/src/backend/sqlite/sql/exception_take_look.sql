-- sqlstreams: exception.take_look
-- $1 group, $2 limit, $5 versions, a JSON array, $7 now or null, $8 limit of suspects, $9 due since, or null. Whether there is anything
-- to take: asked outside any transaction, so that a group without trouble never takes the write lock.
select $2 > 0 and exists (
    select 1 from "{schema}exception_queue_{stream}" indexed by "{schema}exception_queue_{stream}_due"
    where consumer_group_id = $1 and status = 'ready' and kills = 0 and can_run_after >= coalesce($9, 0)
        and can_run_after <= coalesce($7, cast(round(unixepoch('subsec') * 1000000) as integer))
        and schema_version in (select value from json_each($5))
) or $8 > 0 and exists (
    select 1 from "{schema}exception_queue_{stream}" indexed by "{schema}exception_queue_{stream}_suspect"
    where consumer_group_id = $1 and status = 'ready' and kills > 0
        and can_run_after <= coalesce($7, cast(round(unixepoch('subsec') * 1000000) as integer))
        and schema_version in (select value from json_each($5))
) or exists (
    select 1 from "{schema}exception_queue_{stream}" e indexed by "{schema}exception_queue_{stream}_inflight"
    where e.consumer_group_id = $1 and e.status = 'inflight'
        and e.schema_version in (select value from json_each($5))
        and not exists (
            select 1 from "{schema}presence" p
            where p.id = e.presence_id and p.expires_at >= cast(round(unixepoch('subsec') * 1000000) as integer)
        )
) as found
