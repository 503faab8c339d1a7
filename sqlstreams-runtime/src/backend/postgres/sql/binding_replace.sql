-- sqlstreams: binding.replace
-- $1 group, $2 patterns.
with gone as (
    delete from "{schema}"."binding_config_{stream}"
    where consumer_group_id = $1 and pattern <> all($2)
)
insert into "{schema}"."binding_config_{stream}" (consumer_group_id, pattern)
select $1, p from unnest($2::text[]) p
on conflict (consumer_group_id, pattern) do nothing
