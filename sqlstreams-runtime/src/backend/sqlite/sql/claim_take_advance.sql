-- sqlstreams: claim.take_advance
-- $1 group, $3 token. Changes nothing when no lease was written.
update "{schema}consumer_group_cursor_{stream}"
set seq = l.seq, claimed = l.high, replay_until = iif(l.replay_until > l.high, l.replay_until, null), paused_until = null
from "{schema}claim_lease_{stream}" l
where "{schema}consumer_group_cursor_{stream}".consumer_group_id = $1 and l.token = $3
