-- sqlstreams: exception.due
-- $1 group. Microseconds until the next message in trouble is due; null without one.
select min(can_run_after) - cast(round(unixepoch('subsec') * 1000000) as integer) as wait
from "{schema}exception_queue_{stream}"
where consumer_group_id = $1 and status = 'ready'
