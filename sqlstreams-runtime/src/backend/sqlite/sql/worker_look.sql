-- sqlstreams: worker.look
-- $1 owner, $2 the tokens that it holds, $3 the workers that each stream has, $4 those of each group, JSON arrays, $5 now
-- in microseconds. Answers only what is to be done, so that a process where all runs well reads no rows: workers that the
-- owner can take, tokens that it must give up, and whether workers are not declared yet. An instance of the owner that it
-- does not hold is one whose answer was lost.
with live as materialized (
    select i.worker_id, i.token, i.presence_id
    from "{schema}worker_instance" i
    join "{schema}presence" p on p.id = i.presence_id
    where p.expires_at > $5
),
held as materialized (
    select worker_id, sum(presence_id <> $1) as others,
        max(presence_id = $1 and token in (select unhex(value) from json_each($2))) as mine
    from live
    group by worker_id
)
select 'free' as what, w.id, w.name, coalesce(w.stream_id, g.stream_id) as stream, w.consumer_group_id as consumer_group,
    null as token
from "{schema}worker_config" w
left join "{schema}consumer_group_config" g on g.id = w.consumer_group_id
left join held h on h.worker_id = w.id
where w.target_instances <> 0
    and (w.name in (select value from json_each($3)) or w.name in (select value from json_each($4)))
    and not coalesce(h.mine, false)
    and (w.target_instances < 0 or coalesce(h.others, 0) < w.target_instances)
union all
select 'lost', null, null, null, null, unhex(t.value)
from json_each($2) t
where not exists (
    select 1 from "{schema}worker_instance" i
    join "{schema}worker_config" w on w.id = i.worker_id
    where i.token = unhex(t.value) and i.presence_id = $1
        and (w.target_instances < 0 or i.slot < w.target_instances)
)
union all
select 'undeclared', null, null, null, null, null
where exists (
    select 1 from "{schema}stream_config" s
    cross join json_each($3) n
    where not exists (select 1 from "{schema}worker_config" w where w.stream_id = s.id and w.name = n.value)
) or exists (
    select 1 from "{schema}consumer_group_config" g
    cross join json_each($4) n
    where not exists (select 1 from "{schema}worker_config" w where w.consumer_group_id = g.id and w.name = n.value)
)
order by 2
