-- sqlstreams: lane.bury_reset
-- After lane.bury_copy: the lane begins anew. $4 its message, $5 that message's version; others as in lane.bury.
update "{schema}exception_queue_{stream}"
set status = 'ready', schema_version = $5, attempts = 0, failures = 0, failures_total = 0, kills = 0, delays = 0,
    redrives = 0, first_failed_at = null, last_error = null, token = null, presence_id = null,
    can_run_after = coalesce($8, cast(round(unixepoch('subsec') * 1000000) as integer)),
    updated_at = coalesce($8, cast(round(unixepoch('subsec') * 1000000) as integer))
where consumer_group_id = $1 and message_id = $4 and token = $2 and held_to is not null
returning message_id
