-- sqlstreams: letter.count
-- $1 group, $2 after this id, $3 limit, $4 the last id; what the error $5 contains, $6 begins with; $7 version;
-- died $8 since, $9 before, in microseconds; null does not restrict; $10 whether to look for payloads.
-- One row an error and version, the most frequent first, at most $3; each with the totals of all.
with letter as (
    select coalesce(e.last_error, '') as error, e.schema_version, e.message_id, e.died_at,
        $10 and (
            exists (select 1 from "{schema}message_log_{stream}" m where m.id = e.message_id)
            or exists (select 1 from "{schema}exception_payload_{stream}" m where m.message_id = e.message_id)
        ) as stored
    from "{schema}exception_queue_{stream}" e indexed by "{schema}exception_queue_{stream}_dead"
    where e.consumer_group_id = $1 and e.status = 'dead' and e.message_id > $2 and e.message_id <= $4
        and ($5 is null or instr(coalesce(e.last_error, ''), $5) > 0)
        and ($6 is null or substr(coalesce(e.last_error, ''), 1, length($6)) = $6)
        and ($7 is null or e.schema_version = $7)
        and ($8 is null or e.died_at >= $8)
        and ($9 is null or e.died_at < $9)
)
select error, schema_version, count(*) as messages, sum(stored) as stored,
    min(message_id) as oldest, max(message_id) as newest, min(died_at) as first_died_at, max(died_at) as last_died_at,
    sum(count(*)) over () as all_messages,
    sum(sum(stored)) over () as all_stored
from letter
group by error, schema_version
order by messages desc, oldest
limit $3
