-- sqlstreams: claim.take_look
-- $1 group, $3 token. Both the answer of a claim and the look before it, outside any transaction, that
-- keeps an idle group from ever taking the write lock.
-- The newest row's id is found at once; SQLite's table of sequences, which has no index, is only asked for
-- a log that is empty.
select coalesce(l.low, c.claimed, 0) as low, coalesce(c.claimed, 0) as high, h.head,
    c.consumer_group_id is null as missing, coalesce(c.epoch, 0) as epoch, l.replay_until
from (
    select coalesce(
        (select max(id) from "{schema}message_log_{stream}"),
        (select seq from sqlite_sequence where name = '{schema}message_log_{stream}'),
        0) as head
) h
left join "{schema}consumer_group_cursor_{stream}" c on c.consumer_group_id = $1
left join "{schema}claim_lease_{stream}" l on l.token = $3
