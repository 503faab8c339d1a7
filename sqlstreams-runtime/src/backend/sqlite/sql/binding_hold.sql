-- sqlstreams: binding.hold
-- $1 group, $2 declared bindings as a JSON array, $3 the declaring presence or null.
-- What keeps the declared bindings from being stored: a live process that declares the stored ones; a range that was
-- claimed under them and that nobody works on; a process that waits for longer, to store others.
with stored as materialized (
    select s.name as stream_name, g.name as group_name,
        (select json_group_array(pattern) from (
            select pattern from "{schema}binding_config_{stream}" where consumer_group_id = $1 order by pattern
        )) as patterns,
        (select json_group_array(value) from (select value from json_each($2) order by value)) as declared,
        (select started_at from "{schema}presence" where id = $3) as since
    from "{schema}consumer_group_config" g
    join "{schema}stream_config" s on s.id = g.stream_id
    where g.id = $1
),
other as materialized (
    select p.id, p.process, p.started_at,
        (select json_group_array(value) from (select distinct value from json_each(r.value -> 'bindings') order by value)) as patterns
    from stored s, "{schema}presence" p, json_each(p.readable) r
    where p.expires_at >= cast(round(unixepoch('subsec') * 1000000) as integer)
        and r.value ->> 'stream' = s.stream_name and r.value ->> 'group' = s.group_name
        and json_type(r.value, '$.bindings') = 'array'
)
select h.reason, h.process
from (
    select 1 as place, o.started_at, 'declared' as reason, o.process
    from other o, stored s
    where o.patterns = s.patterns
    union all
    select 2, l.claimed_at, 'abandoned', null
    from "{schema}claim_lease_{stream}" l
    where l.consumer_group_id = $1
        and not exists (
            select 1 from "{schema}presence" p
            where p.id = l.presence_id and p.expires_at >= cast(round(unixepoch('subsec') * 1000000) as integer)
        )
    union all
    select 3, o.started_at, 'queued', o.process
    from other o, stored s
    where o.patterns <> s.patterns and o.patterns <> s.declared
        and (s.since is null or (o.started_at, o.id) < (s.since, $3))
) h
order by h.place, h.started_at
limit 1
