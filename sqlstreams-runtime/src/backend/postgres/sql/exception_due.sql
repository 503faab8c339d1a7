-- sqlstreams: exception.due
-- $1 group. Microseconds until the next message in trouble is due; null without one.
select (extract(epoch from min(can_run_after) - clock_timestamp()) * 1000000)::bigint as wait
from "{schema}"."exception_queue_{stream}"
where consumer_group_id = $1 and status = 'ready'
