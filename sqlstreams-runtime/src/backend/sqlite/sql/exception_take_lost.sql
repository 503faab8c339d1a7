-- sqlstreams: exception.take_lost
-- $1 group, $5 versions, a JSON array, $6 lost owners until death, $7 now or null.
-- Makes messages whose owner is gone ready again, as suspects; exception.take takes them in its turn.
update "{schema}exception_queue_{stream}"
set status = 'ready', kills = kills + (presence_id is not null), token = null, presence_id = null,
    can_run_after = coalesce($7, cast(round(unixepoch('subsec') * 1000000) as integer)),
    updated_at = coalesce($7, cast(round(unixepoch('subsec') * 1000000) as integer))
where consumer_group_id = $1 and message_id in (
    select e.message_id
    from "{schema}exception_queue_{stream}" e indexed by "{schema}exception_queue_{stream}_inflight"
    where e.consumer_group_id = $1 and e.status = 'inflight'
        and e.schema_version in (select value from json_each($5))
        and (e.kills + (e.presence_id is not null) < $6 or e.held_to is not null)
        and not exists (
            select 1 from "{schema}presence" p
            where p.id = e.presence_id and p.expires_at >= cast(round(unixepoch('subsec') * 1000000) as integer)
        )
)
