-- sqlstreams: worker.declare
-- Differs from postgres: worker.declare_group declares those of the groups, in the same transaction.
-- $1 the workers that each stream has, $2 those of each group, JSON arrays. What is stored stays as it is.
insert into "{schema}worker_config" (stream_id, name)
select s.id, n.value
from "{schema}stream_config" s
cross join json_each($1) n
where true
on conflict do nothing
