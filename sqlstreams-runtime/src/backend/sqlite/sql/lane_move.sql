-- sqlstreams: lane.move
-- $1 group, $2 token, $3 the message that the lane stands at, $4 the one that it goes to, $5 its version, $6 next
-- (go, retry, later, return), $7 wait in microseconds, $8 error, $9 now or null.
-- What was counted belongs to the message that the lane stands at: another one begins anew.
update "{schema}exception_queue_{stream}"
set message_id = $4,
    schema_version = iif($3 = $4, schema_version, $5),
    status = iif($6 = 'go', 'inflight', 'ready'),
    attempts = iif($3 = $4, attempts, 0) + ($6 in ('retry', 'later')),
    failures = iif($3 = $4, failures, 0) + ($6 = 'retry'),
    failures_total = iif($3 = $4, failures_total, 0) + ($6 = 'retry'),
    delays = iif($3 = $4, delays, 0) + ($6 = 'later'),
    kills = iif($3 = $4, kills, 0),
    can_run_after = coalesce($9, cast(round(unixepoch('subsec') * 1000000) as integer)) + $7,
    first_failed_at = case
        when $3 = $4 and first_failed_at is not null then first_failed_at
        when $6 = 'retry' then coalesce($9, cast(round(unixepoch('subsec') * 1000000) as integer))
    end,
    last_error = coalesce($8, iif($3 = $4, last_error, null)),
    token = iif($6 = 'go', token, null),
    presence_id = iif($6 = 'go', presence_id, null),
    updated_at = coalesce($9, cast(round(unixepoch('subsec') * 1000000) as integer))
where consumer_group_id = $1 and message_id = $3 and token = $2 and held_to is not null
returning held_to
