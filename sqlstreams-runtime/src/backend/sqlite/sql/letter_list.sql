-- sqlstreams: letter.list
-- $1 group, $2 after this id, $3 limit, $4 the last id; what the error $5 contains, $6 begins with; $7 version;
-- died $8 since, $9 before, in microseconds; null does not restrict.
select e.message_id, e.schema_version, e.message_key, e.attempts, e.failures_total, e.kills, e.delays, e.redrives,
    e.first_failed_at, e.died_at, e.last_error
from "{schema}exception_queue_{stream}" e indexed by "{schema}exception_queue_{stream}_dead"
where e.consumer_group_id = $1 and e.status = 'dead' and e.message_id > $2 and e.message_id <= $4
    and ($5 is null or instr(coalesce(e.last_error, ''), $5) > 0)
    and ($6 is null or substr(coalesce(e.last_error, ''), 1, length($6)) = $6)
    and ($7 is null or e.schema_version = $7)
    and ($8 is null or e.died_at >= $8)
    and ($9 is null or e.died_at < $9)
order by e.message_id
limit $3
