-- sqlstreams: binding.replace_rest
-- $1 group, $2 patterns as a JSON array.
delete from "{schema}binding_config_{stream}"
where consumer_group_id = $1 and pattern not in (select value from json_each($2))
