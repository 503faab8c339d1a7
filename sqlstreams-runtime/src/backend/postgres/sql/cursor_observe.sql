-- sqlstreams: cursor.observe
-- $1 groups.
-- The exact observation, for when an unrelated old transaction holds every snapshot's xmin back: the head,
-- then the xids of the transactions that hold the producers' lock on the log's parent. A producer owns an
-- xid before it draws an id, so a holder without one has drawn none up to the head. An xid and not a pid,
-- since a prepared transaction has no pid. pg_locks shows 32 bits of it; the snapshot gives the epoch.
-- OFFSET 0 keeps the locks from being read before the head. An observation that still waits is kept: a newer one
-- has more producers to wait for, and replacing it each second would starve the group. Unless it names a
-- transaction that this server has not begun: it came from another one, with a dump.
-- Cursor rows are never updated, so a locked one is found again by its place, without a walk over dead versions.
with head as materialized (
    select coalesce(pg_sequence_last_value('"{schema}"."message_log_{stream}_id_seq"'::regclass), 0) as id
),
holder as materialized (
    select distinct l.virtualtransaction
    from head h
    cross join lateral (
        select virtualtransaction from pg_catalog.pg_locks
        where h.id is not null
            and locktype = 'relation'
            and database = (select oid from pg_catalog.pg_database where datname = current_database())
            and relation = '"{schema}"."message_log_{stream}"'::regclass
            and mode = 'RowExclusiveLock'
            and granted
        offset 0
    ) l
),
newest as materialized (
    select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xid
),
found as materialized (
    select distinct case
        when c.candidate > n.xid + 2147483648 then c.candidate - 4294967296
        when c.candidate < n.xid - 2147483648 then c.candidate + 4294967296
        else c.candidate
    end as xid
    from newest n
    cross join (select count(*) as holders from holder) barrier
    cross join lateral (
        select n.xid / 4294967296 * 4294967296 + x.transactionid::text::bigint as candidate
        from pg_catalog.pg_locks x
        join holder o on o.virtualtransaction = x.virtualtransaction
        where barrier.holders >= 0 and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.granted
    ) c
),
observed as materialized (
    select h.id as head, array(select xid::text::xid8 from found) as xids from head h
),
locked as materialized (
    select c.*, c.ctid as place, o.head, o.xids
    from observed o
    cross join lateral (
        select g.id, (
            select max(seq) from "{schema}"."consumer_group_cursor_{stream}" where consumer_group_id = g.id
        ) as seq
        from unnest($1::bigint[]) as g (id)
    ) newest
    join "{schema}"."consumer_group_cursor_{stream}" c on c.consumer_group_id = newest.id and c.seq = newest.seq
    where o.head > c.proven_head
        and (
            coalesce(c.exact_head, 0) <= c.claimed
            or exists (select from unnest(c.exact_xids) x where x >= pg_snapshot_xmax(pg_current_snapshot()))
        )
    order by c.consumer_group_id
    for update of c
),
asynchronous as materialized (
    select set_config('synchronous_commit', 'off', true) as setting
),
next as (
    insert into "{schema}"."consumer_group_cursor_{stream}" (
        consumer_group_id, seq, epoch, claimed, committed, proven_head,
        pending_head, pending_xid, exact_head, exact_xids, replay_until, paused_until
    )
    select consumer_group_id, seq + 1, epoch, claimed, committed, proven_head,
        pending_head, pending_xid, head, xids, replay_until, paused_until
    from locked, asynchronous
    where setting is not null
),
previous as (
    delete from "{schema}"."consumer_group_cursor_{stream}" c
    where c.ctid = any(array(select place from locked))
)
select count(*) as observed from locked
