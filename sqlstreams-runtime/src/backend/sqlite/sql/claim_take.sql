-- sqlstreams: claim.take
-- Differs from postgres: several statements in one immediate transaction: claim.take_settle, this one,
-- claim.take_advance, claim.take_look. Whoever holds the write lock sees every id that was drawn.
-- $1 group, $2 width, $3 token, $4 presence, $5 leases that ended cleanly, a JSON array.
insert into "{schema}claim_lease_{stream}" (token, consumer_group_id, seq, presence_id, low, high, replay_until)
select $3, c.consumer_group_id, c.seq + 1, $4, c.claimed, min(c.claimed + $2, h.head), c.replay_until
from (
    select coalesce(
        (select max(id) from "{schema}message_log_{stream}"),
        (select seq from sqlite_sequence where name = '{schema}message_log_{stream}'),
        0) as head
) h
cross join "{schema}consumer_group_cursor_{stream}" c
where c.consumer_group_id = $1 and $2 > 0 and h.head > c.claimed
    and (c.paused_until is null or c.paused_until <= cast(round(unixepoch('subsec') * 1000000) as integer))
