-- sqlstreams: group.lock
-- Differs from postgres: what keeps others out is the transaction, which is immediate.
-- $1 stream, $2 name, $3 retry, $4 timeout in microseconds, $5 delivery log. Answers whether the stored numbers differ.
select g.id, g.key_policy,
    g.retry is not $3 or g.timeout_us <> $4 or g.delivery_log <> $5 as numbers_differ,
    exists (select 1 from "{schema}consumer_group_cursor_{stream}" c where c.consumer_group_id = g.id) as has_cursor
from "{schema}consumer_group_config" g
where g.stream_id = $1 and g.name = $2
