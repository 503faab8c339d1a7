-- sqlstreams: letter.discard
-- $1 group, $2 after this id, $3 limit, $4 the last id; what the error $5 contains, $6 begins with; $7 version;
-- died $8 since, $9 before, in microseconds; null does not restrict;
-- $10 statuses.
-- Waits for a row that is being settled. What is being handled loses its row, and so its token: the late owner's
-- settlement finds nothing. A row that holds the later messages of its key is left alone: they would go with it.
with found as materialized (
    select e.message_id
    from "{schema}"."exception_queue_{stream}" e
    where e.consumer_group_id = $1 and e.status = any($10::text[]) and e.message_id > $2 and e.message_id <= $4
        and e.held_to is null
        and ($5::text is null or position($5 in coalesce(e.last_error, '')) > 0)
        and ($6::text is null or starts_with(coalesce(e.last_error, ''), $6))
        and ($7::integer is null or e.schema_version = $7)
        and ($8::bigint is null or e.died_at >= timestamptz 'epoch' + $8 * interval '1 microsecond')
        and ($9::bigint is null or e.died_at < timestamptz 'epoch' + $9 * interval '1 microsecond')
    order by e.message_id
    limit $3
    for update
),
discarded as (
    delete from "{schema}"."exception_queue_{stream}" e
    using found f
    where e.consumer_group_id = $1 and e.message_id = f.message_id
    returning e.message_id
)
select (select count(*) from found) as found, (select count(*) from discarded) as changed,
    (select max(message_id) from found) as last
