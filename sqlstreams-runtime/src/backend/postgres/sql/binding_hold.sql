-- sqlstreams: binding.hold
-- $1 group, $2 declared bindings, $3 the declaring presence or null.
-- What keeps the declared bindings from being stored: a live process that declares the stored ones; a range that was
-- claimed under them and that nobody works on; a process that waits for longer, to store others.
with stored as materialized (
    select s.name as stream_name, g.name as group_name,
        array(select b.pattern from "{schema}"."binding_config_{stream}" b where b.consumer_group_id = $1 order by 1) as patterns,
        array(select d from unnest($2::text[]) d order by 1) as declared,
        coalesce((select p.started_at from "{schema}".presence p where p.id = $3), 'infinity') as since
    from "{schema}".consumer_group_config g
    join "{schema}".stream_config s on s.id = g.stream_id
    where g.id = $1
),
live as materialized (
    select p.id, p.process, p.started_at, r.value -> 'bindings' as bindings
    from stored s, "{schema}".presence p, json_array_elements(p.readable) r
    where p.expires_at >= clock_timestamp() and r.value ->> 'stream' = s.stream_name and r.value ->> 'group' = s.group_name
        and json_typeof(r.value -> 'bindings') = 'array'
),
other as materialized (
    select l.id, l.process, l.started_at, array(select distinct b from json_array_elements_text(l.bindings) b order by 1) as patterns
    from live l
)
select h.reason, h.process
from (
    select 1 as place, o.started_at, 'declared' as reason, o.process
    from other o, stored s
    where o.patterns = s.patterns
    union all
    select 2, l.claimed_at, 'abandoned', null
    from "{schema}"."claim_lease_{stream}" l
    where l.consumer_group_id = $1
        and not exists (
            select from "{schema}".presence p where p.id = l.presence_id and p.expires_at >= clock_timestamp()
        )
    union all
    select 3, o.started_at, 'queued', o.process
    from other o, stored s
    where o.patterns <> s.patterns and o.patterns <> s.declared and (o.started_at, o.id) < (s.since, coalesce($3, o.id))
) h
order by h.place, h.started_at
limit 1
