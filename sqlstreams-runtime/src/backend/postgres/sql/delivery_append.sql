-- sqlstreams: delivery.append
-- $1 token, $2 handled messages. Nothing for a lease that is another owner's.
insert into "{schema}"."delivery_log_{stream}" (consumer_group_id, message_id, attempt, status)
select l.consumer_group_id, n.id, 1, 'done'
from "{schema}"."claim_lease_{stream}" l
cross join unnest($2::bigint[]) as n (id)
where l.token = $1
