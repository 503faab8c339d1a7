-- sqlstreams: lease.report
-- Differs from postgres: the answer of a transaction that lease.report_progress and lease.report_free
-- begin, and the look before it that finds out whether there is anything to write.
-- $1 group, $2 presence, $3 tokens in use, a JSON array, $4 progress.
-- Answers the listed leases, and those that are owned but unlisted although no claim can still be on its way.
select token, true as listed
from "{schema}claim_lease_{stream}"
where token in (select unhex(value) from json_each($3))
union all
select token, false
from "{schema}claim_lease_{stream}"
where presence_id = $2 and consumer_group_id = $1
    and token not in (select unhex(value) from json_each($3))
    and claimed_at < cast(round(unixepoch('subsec') * 1000000) as integer) - 10000000
