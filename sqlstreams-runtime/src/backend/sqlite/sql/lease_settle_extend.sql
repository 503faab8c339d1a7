-- sqlstreams: lease.settle_extend
-- $1 token, $3 JSON, one array a parked range: version, low, high; $4 now in microseconds or null.
update "{schema}parked_range_{stream}"
set high = n.high,
    replay_until = coalesce(max("{schema}parked_range_{stream}".replay_until, l.replay_until), "{schema}parked_range_{stream}".replay_until, l.replay_until),
    updated_at = coalesce($4, cast(round(unixepoch('subsec') * 1000000) as integer))
from "{schema}claim_lease_{stream}" l
cross join (select value ->> 0 as version, value ->> 1 as low, value ->> 2 as high from json_each($3)) n
where l.token = $1
    and "{schema}parked_range_{stream}".consumer_group_id = l.consumer_group_id
    and "{schema}parked_range_{stream}".schema_version = n.version
    and "{schema}parked_range_{stream}".high = n.low
