-- sqlstreams: worker.look
-- $1 owner, $2 the tokens that it holds, $3 the workers that each stream has, $4 those of each group, $5 now or null.
-- Answers only what is to be done, so that a fleet where all runs well reads no rows: workers that the owner can take,
-- tokens that it must give up, and whether workers are not declared yet. An instance of the owner that it does not hold
-- is one whose answer was lost.
with clock as materialized (
    select coalesce(timestamptz 'epoch' + $5::bigint * interval '1 microsecond', clock_timestamp()) as now
),
live as materialized (
    select i.worker_id, i.slot, i.token, i.presence_id
    from clock c
    join "{schema}".presence p on p.expires_at > c.now
    join "{schema}".worker_instance i on i.presence_id = p.id
),
held as materialized (
    select worker_id,
        count(*) filter (where presence_id <> $1) as others,
        coalesce(bool_or(presence_id = $1 and token = any($2::uuid[])), false) as mine
    from live
    group by worker_id
)
select 'free' as what, w.id, w.name, coalesce(w.stream_id, g.stream_id) as stream, w.consumer_group_id as consumer_group,
    null::uuid as token
from "{schema}".worker_config w
left join "{schema}".consumer_group_config g on g.id = w.consumer_group_id
left join held h on h.worker_id = w.id
where w.target_instances <> 0 and w.name = any($3::text[] || $4::text[])
    and not coalesce(h.mine, false)
    and (w.target_instances < 0 or coalesce(h.others, 0) < w.target_instances)
union all
select 'lost', null, null, null, null, t.token
from unnest($2::uuid[]) t (token)
where not exists (
    select from "{schema}".worker_instance i
    join "{schema}".worker_config w on w.id = i.worker_id
    where i.token = t.token and i.presence_id = $1
        and (w.target_instances < 0 or i.slot < w.target_instances)
)
union all
select 'undeclared', null, null, null, null, null
where exists (
    select from "{schema}".stream_config s
    cross join unnest($3::text[]) n (name)
    where not exists (select from "{schema}".worker_config w where w.stream_id = s.id and w.name = n.name)
) or exists (
    select from "{schema}".consumer_group_config g
    cross join unnest($4::text[]) n (name)
    where not exists (select from "{schema}".worker_config w where w.consumer_group_id = g.id and w.name = n.name)
)
order by 2
