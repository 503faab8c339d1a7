-- sqlstreams: key.ticket
-- $1 group, $2 token, $3 message.
-- Under the claim's lock: every range is claimed before it or after it. A range that is claimed after it sees the ticket,
-- since a gate is asked by a later statement than the claim; this message sees the ranges that were claimed before,
-- by asking later too. Of two with the same place the one that was numbered first goes first: the number is drawn
-- with the lock in hand, from whichever sequence grows. A cursor's version that went while this waited gives nothing, and the caller asks again. Durable.
with cursor as materialized (
    select c.claimed
    from "{schema}"."consumer_group_cursor_{stream}" c
    where c.consumer_group_id = $1 and c.seq = (
        select max(seq) from "{schema}"."consumer_group_cursor_{stream}" where consumer_group_id = $1
    )
    for update
)
update "{schema}"."exception_queue_{stream}" e
set ticket = c.claimed, ticket_number = nextval('"{schema}"."claim_lease_{stream}_lid_seq"'::regclass), updated_at = clock_timestamp()
from cursor c
where e.consumer_group_id = $1 and e.message_id = $3 and e.token = $2 and e.status = 'inflight'
returning e.ticket
