-- sqlstreams: group.lock
-- Differs from postgres: what keeps others out is the transaction, which is immediate.
-- $1 stream, $2 name, $3 retry, $4 timeout in microseconds, $5 bindings as a JSON array, $6 delivery log.
-- Answers whether the stored numbers and bindings differ.
select g.id, g.key_policy,
    g.retry is not $3 or g.timeout_us <> $4 or g.delivery_log <> $6 as numbers_differ,
    exists (
        select value from json_each($5)
        except select pattern from "{schema}binding_config_{stream}" where consumer_group_id = g.id
    ) or exists (
        select pattern from "{schema}binding_config_{stream}" where consumer_group_id = g.id
        except select value from json_each($5)
    ) as bindings_differ,
    exists (select 1 from "{schema}consumer_group_cursor_{stream}" c where c.consumer_group_id = g.id) as has_cursor
from "{schema}consumer_group_config" g
where g.stream_id = $1 and g.name = $2
