-- sqlstreams: letter.redrive_look
-- $1 group, $2 after this id, $3 limit, $4 the last id; what the error $5 contains, $6 begins with; $7 version;
-- died $8 since, $9 before, in microseconds; null does not restrict.
-- What letter.redrive does after it, in the same transaction.
select count(*) as found, coalesce(sum(stored), 0) as changed, max(message_id) as last
from (
    select f.message_id, (
        exists (select 1 from "{schema}message_log_{stream}" m where m.id = f.message_id)
        or exists (select 1 from "{schema}exception_payload_{stream}" m where m.message_id = f.message_id)
    ) as stored
    from (
        select e.message_id
        from "{schema}exception_queue_{stream}" e indexed by "{schema}exception_queue_{stream}_dead"
        where e.consumer_group_id = $1 and e.status = 'dead' and e.message_id > $2 and e.message_id <= $4
            and ($5 is null or instr(coalesce(e.last_error, ''), $5) > 0)
            and ($6 is null or substr(coalesce(e.last_error, ''), 1, length($6)) = $6)
            and ($7 is null or e.schema_version = $7)
            and ($8 is null or e.died_at >= $8)
            and ($9 is null or e.died_at < $9)
        order by e.message_id
        limit $3
    ) f
)
