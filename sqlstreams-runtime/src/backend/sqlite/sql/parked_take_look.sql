-- sqlstreams: parked.take_look
-- $2 group, $4 versions, a JSON array. Asked outside any transaction.
select exists (
    select 1 from "{schema}parked_range_{stream}"
    where consumer_group_id = $2 and schema_version in (select value from json_each($4))
) as found
