-- sqlstreams: replay.pause
-- $1 group, $2 for so long, in microseconds; null lets the group go on. The end of the pause is stored, so that it ends
-- by itself when the caller is lost.
update "{schema}consumer_group_cursor_{stream}"
set seq = seq + 1, paused_until = cast(round(unixepoch('subsec') * 1000000) as integer) + $2
where consumer_group_id = $1
