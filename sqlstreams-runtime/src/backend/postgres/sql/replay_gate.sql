-- sqlstreams: replay.gate
-- $1 group. As group.gate, but two of these exclude each other, and one excludes a redrive, a discard and the taking of a
-- parked range: what those change while this one looks would escape it. Claims, which only need the row to stay, go on.
select id
from "{schema}".consumer_group_config
where id = $1
for no key update
