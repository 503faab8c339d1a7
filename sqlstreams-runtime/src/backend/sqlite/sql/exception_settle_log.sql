-- sqlstreams: exception.settle_log
-- $1 group, $2 token, $3 outcomes as in exception.settle, $4 now or null, $5 outcomes to log, a JSON array. Before
-- the rows change, in the same transaction; only where the group keeps a delivery log.
insert into "{schema}delivery_log_{stream}" (consumer_group_id, message_id, attempt, status, error, attempted_at)
select e.consumer_group_id, e.message_id, e.attempts + 1, n.next, n.error, coalesce($4, cast(round(unixepoch('subsec') * 1000000) as integer))
from (
    select value ->> 0 as id, value ->> 1 as next, value ->> 3 as error from json_each($3)
) n
join "{schema}exception_queue_{stream}" e on e.consumer_group_id = $1 and e.message_id = n.id
where e.token = $2 and n.next in (select value from json_each($5))
