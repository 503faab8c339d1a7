-- sqlstreams: cursor.advance
-- $1 group.
-- Moves `committed` to the settled position. Everything is computed from rows and in one statement: the version that is
-- locked is the one that the snapshot saw, or none is, so that no other claim or rewind lies in between, and a position
-- of an earlier epoch is never written over a later one. Open exceptions are sought above `committed` only: below it
-- may lie any number of dead entries, and what was redriven there moves no cursor. Does not wait for a claim.
with seen as materialized (
    select c.*
    from "{schema}"."consumer_group_cursor_{stream}" c
    where c.consumer_group_id = $1
    order by c.seq desc
    limit 1
),
target as materialized (
    select s.seq, s.epoch, s.committed, least(
        s.claimed,
        (select min(low) from "{schema}"."claim_lease_{stream}" where consumer_group_id = $1),
        (select min(low) from "{schema}"."parked_range_{stream}" where consumer_group_id = $1),
        (select min(message_id) - 1 from "{schema}"."exception_queue_{stream}"
            where consumer_group_id = $1 and status in ('ready', 'inflight', 'deferred')
                and message_id > (select committed from seen))
    ) as settled
    from seen s
),
locked as materialized (
    select c.*
    from "{schema}"."consumer_group_cursor_{stream}" c
    where c.consumer_group_id = $1 and c.seq = (select seq from target where settled > committed)
        and c.epoch = (select epoch from target)
    for update of c skip locked
),
asynchronous as materialized (
    select set_config('synchronous_commit', 'off', true) as setting
    where exists (select from locked)
),
next as (
    insert into "{schema}"."consumer_group_cursor_{stream}" (
        consumer_group_id, seq, epoch, claimed, committed, proven_head,
        pending_head, pending_xid, exact_head, exact_xids, replay_until, paused_until
    )
    select l.consumer_group_id, l.seq + 1, l.epoch, l.claimed, greatest(l.committed, t.settled), l.proven_head,
        l.pending_head, l.pending_xid, l.exact_head, l.exact_xids, l.replay_until, l.paused_until
    from locked l
    cross join target t
    cross join asynchronous a
    where a.setting is not null
),
previous as (
    delete from "{schema}"."consumer_group_cursor_{stream}" c
    where c.consumer_group_id = $1 and c.seq = (select seq from locked)
)
select exists (select from locked) as moved
