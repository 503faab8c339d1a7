-- sqlstreams: lane.bury
-- Differs from postgres: for a lane that ends with its dead message; with a successor, lane.bury_move, lane.bury_copy and
-- lane.bury_reset do the same in one transaction.
-- $1 group, $2 token, $3 the message that the lane stands at, $6 where the lane ends as far as the caller knows,
-- $7 error, $8 now or null.
update "{schema}exception_queue_{stream}"
set status = 'dead', held_to = null, attempts = attempts + 1, failures = failures + 1,
    failures_total = failures_total + 1, can_run_after = null,
    first_failed_at = coalesce(first_failed_at, $8, cast(round(unixepoch('subsec') * 1000000) as integer)),
    died_at = coalesce($8, cast(round(unixepoch('subsec') * 1000000) as integer)), last_error = $7,
    token = null, presence_id = null,
    updated_at = coalesce($8, cast(round(unixepoch('subsec') * 1000000) as integer))
where consumer_group_id = $1 and message_id = $3 and token = $2 and held_to = $6
returning message_id
