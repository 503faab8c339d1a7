-- sqlstreams: worker.declare_group
-- $2 the workers that each group has, a JSON array.
insert into "{schema}worker_config" (consumer_group_id, name)
select g.id, n.value
from "{schema}consumer_group_config" g
cross join json_each($2) n
where true
on conflict do nothing
