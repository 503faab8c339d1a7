-- sqlstreams: replay.lane
-- $1 group, $2 where the group will stand. Locks the lanes that reach beyond it, in the order in which settlements lock
-- them. To be repeated until the answer stays the same: one that moved on, or died and left a successor, while this
-- waited is another row then.
select message_id
from "{schema}"."exception_queue_{stream}"
where consumer_group_id = $1 and held_to > $2
order by message_key
for update
