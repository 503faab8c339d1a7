-- sqlstreams: claim.take
-- $1 group, $2 width, $3 token, $4 presence, $5 leases that ended cleanly, $6 synchronous_commit.
-- Ends leases, advances the cursor and writes the new lease; the messages are read by a later statement, so
-- no lock is held while a payload travels. Cursor rows are only inserted and deleted: a waiter whose row
-- went gets nothing and asks again, and never an older version. A version is found by a scalar subquery and not by
-- a join: a join's plan can walk every dead version that a held snapshot keeps.
-- The head is read before this transaction owns an xid (everything that writes depends on it); so whoever
-- holds an id up to the head has a lower xid, and a snapshot with xmin >= that xid sees all of them ended.
-- The function reads the head under its page's lock. A plain SELECT may not: nextval writes the sequence's row in
-- place, for a moment with an id up to 32 ahead of the drawn ones, and proving those would lose them.
with head as materialized (
    select coalesce(pg_sequence_last_value('"{schema}"."message_log_{stream}_id_seq"'::regclass), 0) as id
),
seen as materialized (
    select c.seq, c.epoch, c.claimed, c.committed, c.pending_head, c.pending_xid, c.exact_head, c.exact_xids,
        c.replay_until, c.paused_until, h.id as head,
        greatest(
            c.proven_head,
            case when pg_snapshot_xmin(pg_current_snapshot()) >= c.pending_xid then c.pending_head end,
            case when not exists (
                select from unnest(c.exact_xids) x
                where not pg_visible_in_snapshot(x, pg_current_snapshot())
            ) then c.exact_head end
        ) as proven
    from head h
    cross join lateral (
        select * from "{schema}"."consumer_group_cursor_{stream}"
        where consumer_group_id = $1
        order by seq desc
        limit 1
    ) c
),
wanted as materialized (
    select seq from seen
    where $2 > 0 and head > claimed and (proven > claimed or coalesce(pending_head, 0) <= proven)
        and (paused_until is null or paused_until <= clock_timestamp())
),
locked as materialized (
    select c.seq
    from "{schema}"."consumer_group_cursor_{stream}" c
    where c.consumer_group_id = $1 and c.seq = (select seq from wanted)
    for update of c
),
step as materialized (
    select s.*, least(s.proven, s.claimed + $2) as taken
    from seen s
    join locked l on l.seq = s.seq
),
commit as materialized (
    select set_config('synchronous_commit', $6, true) as setting
),
next as (
    insert into "{schema}"."consumer_group_cursor_{stream}" (
        consumer_group_id, seq, epoch, claimed, committed, proven_head,
        pending_head, pending_xid, exact_head, exact_xids, replay_until
    )
    select $1, seq + 1, epoch, greatest(claimed, taken), committed, proven,
        case when pending_head > proven then pending_head when head > proven then head end,
        case when pending_head > proven then pending_xid when head > proven then pg_current_xact_id() end,
        case when exact_head > proven then exact_head end,
        case when exact_head > proven then exact_xids end,
        case when replay_until > greatest(claimed, taken) then replay_until end
    from step
),
previous as (
    delete from "{schema}"."consumer_group_cursor_{stream}" c
    where c.consumer_group_id = $1 and c.seq = (select seq from step)
),
lease as (
    insert into "{schema}"."claim_lease_{stream}" (token, consumer_group_id, seq, presence_id, low, high, replay_until)
    select $3, $1, seq + 1, $4, claimed, taken, replay_until
    from step
    where taken > claimed
),
settled as (
    delete from "{schema}"."claim_lease_{stream}"
    where token = any($5) and (select id from head) is not null
)
select
    coalesce(s.claimed, 0) as low,
    coalesce(greatest(t.taken, s.claimed), 0) as high,
    h.id as head,
    coalesce(s.proven, 0) as proven,
    w.seq is not null and t.seq is null as contended,
    coalesce(s.proven < h.id, false) as pending,
    s.seq is null as missing,
    coalesce(s.epoch, 0) as epoch,
    t.replay_until
from head h
cross join commit a
left join seen s on true
left join wanted w on true
left join step t on true
where a.setting is not null
