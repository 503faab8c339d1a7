-- sqlstreams: group.update
-- $1 group, $2 retry, $3 timeout in microseconds, $4 delivery log.
update "{schema}consumer_group_config"
set retry = $2, timeout_us = $3, delivery_log = $4, updated_at = cast(round(unixepoch('subsec') * 1000000) as integer)
where id = $1
