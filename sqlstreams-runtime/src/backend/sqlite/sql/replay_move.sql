-- sqlstreams: replay.move
-- $1 group, $2 where the group will stand. A new epoch: whoever read a position before may not write it any more.
update "{schema}consumer_group_cursor_{stream}"
set seq = seq + 1, epoch = epoch + 1, claimed = $2, committed = min(committed, $2), paused_until = null,
    replay_until = nullif(max(coalesce(replay_until, 0), claimed, $2), $2)
where consumer_group_id = $1
