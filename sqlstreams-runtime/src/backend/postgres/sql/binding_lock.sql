-- sqlstreams: binding.lock
-- $1 group. Whoever changes its bindings, or may not, waits for others who do.
select id from "{schema}".consumer_group_config where id = $1 for update
