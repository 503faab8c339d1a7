-- sqlstreams: delivery.list
-- $1 group, $2 message, $3 limit.
select attempt, status, error, attempted_at
from "{schema}"."delivery_log_{stream}"
where consumer_group_id = $1 and message_id = $2
order by id desc
limit $3
