-- sqlstreams: group.lock
-- $1 stream, $2 name, $3 retry, $4 timeout in microseconds, $5 bindings, $6 delivery log. Answers whether the stored
-- numbers and bindings differ.
select g.id, g.key_policy,
    g.retry::text is distinct from $3 or g.timeout_us <> $4 or g.delivery_log <> $6 as numbers_differ,
    array(select b.pattern from "{schema}"."binding_config_{stream}" b where b.consumer_group_id = g.id order by 1)
        is distinct from array(select p from unnest($5::text[]) p order by 1) as bindings_differ,
    exists (select from "{schema}"."consumer_group_cursor_{stream}" c where c.consumer_group_id = g.id) as has_cursor
from "{schema}".consumer_group_config g
where g.stream_id = $1 and g.name = $2
for update of g
