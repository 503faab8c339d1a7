-- sqlstreams: letter.count
-- $1 group, $2 after this id, $3 limit, $4 the last id; what the error $5 contains, $6 begins with; $7 version;
-- died $8 since, $9 before, in microseconds; null does not restrict; $10 whether to look for payloads.
-- One row an error and version, the most frequent first, at most $3; each with the totals of all.
-- A lateral subquery with a limit can only be a look by id: an EXISTS could be turned into a scan of the whole log.
with letter as (
    select coalesce(e.last_error, '') as error, e.schema_version, e.message_id, e.died_at,
        $10::boolean and (l.there or p.there) is true as stored
    from "{schema}"."exception_queue_{stream}" e
    left join lateral (
        select true as there from "{schema}"."message_log_{stream}" m where $10 and m.id = e.message_id limit 1
    ) l on true
    left join lateral (
        select true as there from "{schema}"."exception_payload_{stream}" m
        where $10 and l.there is null and m.message_id = e.message_id limit 1
    ) p on true
    where e.consumer_group_id = $1 and e.status = 'dead' and e.message_id > $2 and e.message_id <= $4
        and ($5::text is null or position($5 in coalesce(e.last_error, '')) > 0)
        and ($6::text is null or starts_with(coalesce(e.last_error, ''), $6))
        and ($7::integer is null or e.schema_version = $7)
        and ($8::bigint is null or e.died_at >= timestamptz 'epoch' + $8 * interval '1 microsecond')
        and ($9::bigint is null or e.died_at < timestamptz 'epoch' + $9 * interval '1 microsecond')
)
select error, schema_version, count(*) as messages, count(*) filter (where stored) as stored,
    min(message_id) as oldest, max(message_id) as newest, min(died_at) as first_died_at, max(died_at) as last_died_at,
    (sum(count(*)) over ())::bigint as all_messages,
    (sum(count(*) filter (where stored)) over ())::bigint as all_stored
from letter
group by error, schema_version
order by messages desc, oldest
limit $3
