-- sqlstreams: replay.parked_cut
-- $1 group, $2 where the group will stand.
update "{schema}parked_range_{stream}"
set high = $2, updated_at = cast(round(unixepoch('subsec') * 1000000) as integer)
where consumer_group_id = $1 and low < $2 and high > $2
