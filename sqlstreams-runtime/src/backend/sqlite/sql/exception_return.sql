-- sqlstreams: exception.return
-- $1 group, $2 token.
update "{schema}exception_queue_{stream}" indexed by "{schema}exception_queue_{stream}_inflight"
set status = 'ready', can_run_after = cast(round(unixepoch('subsec') * 1000000) as integer), token = null,
    presence_id = null, updated_at = cast(round(unixepoch('subsec') * 1000000) as integer)
where consumer_group_id = $1 and status = 'inflight' and token = $2
