-- sqlstreams: binding.lock
-- Differs from postgres: what keeps others out is the transaction, which is immediate.
-- $1 group.
select id from "{schema}consumer_group_config" where id = $1
