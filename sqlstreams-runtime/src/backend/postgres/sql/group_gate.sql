-- sqlstreams: group.gate
-- $1 group. What a person moves and what retention drops go one after the other: whoever redrives or discards holds
-- this lock until it commits, and retention takes the row for update before it computes what it may drop. A statement
-- of its own, so that the next one sees what was dropped while it waited.
select id
from "{schema}".consumer_group_config
where id = $1
for share
