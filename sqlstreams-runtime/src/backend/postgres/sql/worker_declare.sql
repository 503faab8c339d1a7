-- sqlstreams: worker.declare
-- $1 the workers that each stream has, $2 those of each group. What is stored stays as it is, suspended or not.
with of_streams as (
    insert into "{schema}".worker_config (stream_id, name)
    select s.id, n.name
    from "{schema}".stream_config s
    cross join unnest($1::text[]) n (name)
    where not exists (
        select from "{schema}".worker_config w where w.stream_id = s.id and w.name = n.name
    )
    order by s.id, n.name
    on conflict do nothing
)
insert into "{schema}".worker_config (consumer_group_id, name)
select g.id, n.name
from "{schema}".consumer_group_config g
cross join unnest($2::text[]) n (name)
where not exists (
    select from "{schema}".worker_config w where w.consumer_group_id = g.id and w.name = n.name
)
order by g.id, n.name
on conflict do nothing
