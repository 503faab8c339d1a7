-- sqlstreams: exception.take
-- Differs from postgres: several statements in one immediate transaction: exception.take_bury,
-- exception.take_lost, and this one, which takes due messages; exception.take_read reads them afterwards.
-- $1 group, $2 limit, $3 token, $4 presence, $5 versions, a JSON array, $6 lost owners until death, $7 now or null,
-- $8 how many of those that lost an owner before: they are suspects, and only one that runs alone is known to be
-- the killer; a group that is drained before it is rewound takes nothing; $9 due since, or null. Durable: a message that kills its process is counted before it runs again.
update "{schema}exception_queue_{stream}"
set status = 'inflight', token = $3, presence_id = $4,
    updated_at = coalesce($7, cast(round(unixepoch('subsec') * 1000000) as integer))
where consumer_group_id = $1 and message_id in (
    select message_id from (
        select message_id
        from "{schema}exception_queue_{stream}" indexed by "{schema}exception_queue_{stream}_due"
        where consumer_group_id = $1 and status = 'ready' and kills = 0 and can_run_after >= coalesce($9, 0)
            and can_run_after <= coalesce($7, cast(round(unixepoch('subsec') * 1000000) as integer))
            and schema_version in (select value from json_each($5))
        order by can_run_after
        limit iif(
            exists (
                select 1 from "{schema}consumer_group_cursor_{stream}"
                where consumer_group_id = $1 and paused_until > cast(round(unixepoch('subsec') * 1000000) as integer)
            ), 0, max(0, $2))
    )
    union all
    select message_id from (
        select message_id
        from "{schema}exception_queue_{stream}" indexed by "{schema}exception_queue_{stream}_suspect"
        where consumer_group_id = $1 and status = 'ready' and kills > 0
            and can_run_after <= coalesce($7, cast(round(unixepoch('subsec') * 1000000) as integer))
            and schema_version in (select value from json_each($5))
        order by can_run_after, message_id
        limit iif(
            exists (
                select 1 from "{schema}consumer_group_cursor_{stream}"
                where consumer_group_id = $1 and paused_until > cast(round(unixepoch('subsec') * 1000000) as integer)
            ), 0, max(0, $8))
    )
)
