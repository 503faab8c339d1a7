-- sqlstreams: delivery.append
-- $1 token, $2 handled messages, a JSON array. Nothing for a lease that is another owner's.
insert into "{schema}delivery_log_{stream}" (consumer_group_id, message_id, attempt, status)
select l.consumer_group_id, n.id, 1, 'done'
from "{schema}claim_lease_{stream}" l
cross join (select value as id from json_each($2)) n
where l.token = $1
