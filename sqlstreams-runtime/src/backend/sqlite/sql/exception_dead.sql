-- sqlstreams: exception.dead
-- $1 group, $2 after this id, $3 limit.
select message_id, schema_version, message_key, attempts, last_error
from "{schema}exception_queue_{stream}"
where consumer_group_id = $1 and status = 'dead' and message_id > $2
order by message_id
limit $3
