-- sqlstreams: lease.settle_log
-- $1 token, $2 exceptions as in lease.settle_exception, $4 now in microseconds or null; JSON arrays: $5 handled
-- messages to log, $6 outcomes to log. Only where the group keeps a delivery log.
insert into "{schema}delivery_log_{stream}" (consumer_group_id, message_id, attempt, status, error, attempted_at)
select l.consumer_group_id, n.id, 1, n.next, n.error, coalesce($4, cast(round(unixepoch('subsec') * 1000000) as integer))
from "{schema}claim_lease_{stream}" l
cross join (
    select value ->> 0 as id, value ->> 3 as next, value ->> 5 as error from json_each($2)
    union all
    select value, 'done', null from json_each($5)
) n
where l.token = $1 and n.next in (select value from json_each($6))
