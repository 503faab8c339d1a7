-- sqlstreams: letter.discard_look
-- $1 group, $2 after this id, $3 limit, $4 the last id; what the error $5 contains, $6 begins with; $7 version;
-- died $8 since, $9 before, in microseconds; null does not restrict;
-- $10 statuses, a JSON array. What letter.discard does after it, in the same transaction.
select count(*) as found, count(*) as changed, max(message_id) as last
from (
    select e.message_id
    from "{schema}exception_queue_{stream}" e
    where e.consumer_group_id = $1 and e.status in (select value from json_each($10))
        and e.message_id > $2 and e.message_id <= $4 and e.held_to is null
        and ($5 is null or instr(coalesce(e.last_error, ''), $5) > 0)
        and ($6 is null or substr(coalesce(e.last_error, ''), 1, length($6)) = $6)
        and ($7 is null or e.schema_version = $7)
        and ($8 is null or e.died_at >= $8)
        and ($9 is null or e.died_at < $9)
    order by e.message_id
    limit $3
)
