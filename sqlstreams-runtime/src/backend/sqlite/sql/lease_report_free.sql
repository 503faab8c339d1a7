-- sqlstreams: lease.report_free
-- $1 group, $2 presence, $3 tokens in use, a JSON array.
update "{schema}claim_lease_{stream}"
set presence_id = null
where presence_id = $2 and consumer_group_id = $1
    and token not in (select unhex(value) from json_each($3))
    and claimed_at < cast(round(unixepoch('subsec') * 1000000) as integer) - 10000000
