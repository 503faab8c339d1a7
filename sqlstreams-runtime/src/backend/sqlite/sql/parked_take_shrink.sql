-- sqlstreams: parked.take_shrink
-- $1 token. Takes the lease's ids from the range that begins with them.
update "{schema}parked_range_{stream}"
set low = l.high, updated_at = cast(round(unixepoch('subsec') * 1000000) as integer)
from "{schema}claim_lease_{stream}" l
where l.token = $1
    and "{schema}parked_range_{stream}".consumer_group_id = l.consumer_group_id
    and "{schema}parked_range_{stream}".schema_version = l.schema_version
    and "{schema}parked_range_{stream}".low = l.low
