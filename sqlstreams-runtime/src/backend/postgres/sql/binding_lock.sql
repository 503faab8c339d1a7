-- sqlstreams: binding.lock
-- $1 group. Whoever changes its bindings, or may not, waits for others who do; claims, whose cursor rows refer to the
-- group, wait for nobody.
select id from "{schema}".consumer_group_config where id = $1 for no key update
