-- sqlstreams: binding.list
-- $1 group.
select pattern from "{schema}"."binding_config_{stream}" where consumer_group_id = $1
