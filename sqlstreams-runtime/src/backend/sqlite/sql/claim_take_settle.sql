-- sqlstreams: claim.take_settle
-- $5 leases that ended cleanly, a JSON array.
delete from "{schema}claim_lease_{stream}"
where token in (select unhex(value) from json_each($5))
