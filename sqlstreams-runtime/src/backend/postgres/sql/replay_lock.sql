-- sqlstreams: replay.lock
-- $1 group. The claim lock: the newest version of the cursor. No row when another version came while this waited: ask
-- again.
select c.seq
from "{schema}"."consumer_group_cursor_{stream}" c
where c.consumer_group_id = $1 and c.seq = (
    select max(seq) from "{schema}"."consumer_group_cursor_{stream}" where consumer_group_id = $1
)
for update of c
