-- sqlstreams: binding.replace
-- Differs from postgres: binding.replace_rest has deleted the others, in the same transaction.
-- $1 group, $2 patterns as a JSON array.
insert into "{schema}binding_config_{stream}" (consumer_group_id, pattern)
select $1, value from json_each($2) where true
on conflict (consumer_group_id, pattern) do nothing
