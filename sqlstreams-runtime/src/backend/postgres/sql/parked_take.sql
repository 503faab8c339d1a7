-- sqlstreams: parked.take
-- $1 group, $2 versions, $3 width, $4 token, $5 presence.
-- Behind the group's row, since a rewind cuts parked ranges and leases in two statements: what went from one to the
-- other between them would escape it. An idle look locks nothing.
with found as materialized (
    select from "{schema}"."parked_range_{stream}"
    where consumer_group_id = $1 and schema_version = any($2) and $3 > 0
    limit 1
),
gate as materialized (
    select id from "{schema}".consumer_group_config
    where id = $1 and exists (select from found)
    for share
),
range as materialized (
    select id, schema_version, low, high, replay_until, least(high, low + $3) as taken
    from "{schema}"."parked_range_{stream}"
    where consumer_group_id = (select id from gate) and schema_version = any($2) and $3 > 0
    order by low
    limit 1
    for update skip locked
),
shrunk as (
    update "{schema}"."parked_range_{stream}" p
    set low = r.taken, updated_at = clock_timestamp()
    from range r
    where p.id = r.id and r.taken < r.high
),
emptied as (
    delete from "{schema}"."parked_range_{stream}" p
    using range r
    where p.id = r.id and r.taken >= r.high
)
insert into "{schema}"."claim_lease_{stream}" (token, consumer_group_id, seq, presence_id, low, high, schema_version, replay_until)
select $4, $1, 0, $5, low, taken, schema_version, replay_until
from range
returning token, low, high, schema_version, reclaims, '{}'::bigint[] as done_low, '{}'::bigint[] as done_high,
    replay_until
