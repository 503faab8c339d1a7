-- sqlstreams: group.create
-- $1 stream, $2 name, $3 key policy, $4 retry, $5 timeout in microseconds, $6 delivery log.
insert into "{schema}consumer_group_config" (stream_id, name, key_policy, retry, timeout_us, delivery_log)
values ($1, $2, $3, $4, $5, $6)
on conflict (stream_id, name) do nothing
