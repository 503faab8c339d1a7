-- sqlstreams: group.update
-- $1 group, $2 retry, $3 timeout in microseconds.
update "{schema}".consumer_group_config
set retry = $2::json, timeout_us = $3, updated_at = now()
where id = $1
