-- sqlstreams: delayed.promote_look
-- $1 now in microseconds. The time until the next message is due, not above 0 when one is due; null without one. Asked
-- outside any transaction, so that a stream without due messages never takes the write lock.
select min(deliver_at) - $1 as wait
from "{schema}delayed_message_{stream}"
