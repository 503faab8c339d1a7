-- sqlstreams: replay.exception_cut
-- $1 group, $2 where the group will stand. A lane across ends there; one that runs goes to another owner, and
-- so does a message whose ticket is of a place above: no range of the replay would wait for it.
update "{schema}exception_queue_{stream}"
set held_to = iif(held_to > $2, $2, held_to), ticket = null, status = 'ready', token = null, presence_id = null,
    updated_at = cast(round(unixepoch('subsec') * 1000000) as integer),
    can_run_after = iif(status = 'inflight', cast(round(unixepoch('subsec') * 1000000) as integer), can_run_after)
where consumer_group_id = $1 and message_id <= $2 and (held_to > $2 or (status = 'inflight' and ticket > $2))
