-- sqlstreams: exception.settle
-- Differs from postgres: exception.settle_done deletes what is handled, in the same transaction.
-- $1 group, $2 token; $3 JSON, one array a message: id, next (done, retry, later, dead, return), wait in
-- microseconds, error; $4 now or null. Rows that another owner took are left alone. Answers the ids of the others.
-- Materialized, and with the group, so that rows are found by their whole key and not by the group's alone.
with n as materialized (
    select $1 as consumer_group_id, value ->> 0 as id, value ->> 1 as next, value ->> 2 as wait, value ->> 3 as error,
        coalesce($4, cast(round(unixepoch('subsec') * 1000000) as integer)) as now
    from json_each($3)
)
update "{schema}exception_queue_{stream}"
set status = iif(n.next = 'dead', 'dead', 'ready'),
    attempts = attempts + (n.next <> 'return'),
    failures = failures + (n.next in ('retry', 'dead')),
    failures_total = failures_total + (n.next in ('retry', 'dead')),
    delays = delays + (n.next = 'later'),
    can_run_after = iif(n.next = 'dead', null, n.now + n.wait),
    first_failed_at = iif(n.next in ('retry', 'dead'), coalesce(first_failed_at, n.now), first_failed_at),
    died_at = iif(n.next = 'dead', n.now, null),
    last_error = coalesce(n.error, last_error),
    token = null,
    presence_id = null,
    updated_at = n.now
from n
where "{schema}exception_queue_{stream}".consumer_group_id = n.consumer_group_id
    and "{schema}exception_queue_{stream}".message_id = n.id
    and "{schema}exception_queue_{stream}".token = $2
    and n.next <> 'done'
returning message_id
