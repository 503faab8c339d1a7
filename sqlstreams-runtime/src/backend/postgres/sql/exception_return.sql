-- sqlstreams: exception.return
-- $1 group, $2 token.
update "{schema}"."exception_queue_{stream}"
set status = 'ready', can_run_after = clock_timestamp(), token = null, presence_id = null, updated_at = clock_timestamp()
where consumer_group_id = $1 and status = 'inflight' and token = $2
