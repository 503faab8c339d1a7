-- sqlstreams: group.lock
-- $1 stream, $2 name, $3 retry, $4 timeout in microseconds, $5 delivery log. Answers whether the stored numbers differ.
select g.id, g.key_policy,
    g.retry::text is distinct from $3 or g.timeout_us <> $4 or g.delivery_log <> $5 as numbers_differ,
    exists (select from "{schema}"."consumer_group_cursor_{stream}" c where c.consumer_group_id = g.id) as has_cursor
from "{schema}".consumer_group_config g
where g.stream_id = $1 and g.name = $2
for update of g
