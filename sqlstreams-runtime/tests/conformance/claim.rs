//! Claims of fresh messages: `claim_take`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sqlstreams_runtime::backend::{Backend, ClaimParams};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, StreamId};
use sqlx::Connection;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::harness::{
    self, Installation, PATIENCE, claim_params, ids, message, on_both, pass_the_head, presence_params, read_params,
};
use crate::support::cluster::{Cluster, Options};

on_both! {
    take_gives_at_most_width_ids_after_the_cursor,
    take_gives_what_is_there_when_that_is_less_than_the_width,
    take_of_nothing_says_where_the_group_stands,
    take_without_width_only_settles,
    take_ends_the_leases_that_are_settled,
    take_leaves_other_leases_alone,
    take_keeps_the_groups_apart,
    take_says_that_a_removed_group_is_missing,
    take_whose_answer_was_lost_is_found_by_its_token,
    take_with_a_used_token_changes_nothing,
    take_gives_every_id_once_to_eight_claimers,
}

async fn take_gives_at_most_width_ids_after_the_cursor(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 10).await;
    let mut expected_low = 0;
    for width in [1, 2, 3, 4] {
        let (token, row) = installation.claim(stream, group, presence, width).await;
        assert_eq!((row.low, row.high), (expected_low, expected_low + width));
        assert!(row.high <= row.proven && row.proven <= row.head, "{row:?}");
        let lease =
            installation.backend.lease_find(stream, token).await.expect("a look").expect("the claim is a lease");
        assert_eq!((lease.low, lease.high), (row.low, row.high));
        let position = installation.backend.cursor_position(stream, group).await.expect("a position");
        assert_eq!(position.claimed, row.high, "the cursor moved with the claim");
        expected_low += width;
    }
}

async fn take_gives_what_is_there_when_that_is_less_than_the_width(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 3).await;
    let (_, row) = installation.claim(stream, group, presence, 1000).await;
    assert_eq!((row.low, row.high, row.head), (0, 3, 3));
    installation.produce(stream, 2).await;
    let (_, row) = installation.claim(stream, group, presence, 1000).await;
    assert_eq!((row.low, row.high, row.head), (3, 5, 5), "the claim begins where the last one ended");
}

async fn take_of_nothing_says_where_the_group_stands(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    let row = installation.backend.claim_take(&claim_params(stream, group, presence, 10)).await.expect("a claim");
    assert_eq!((row.low, row.high, row.head, row.proven), (0, 0, 0, 0), "nothing was ever produced");
    assert!(!row.contended && !row.pending && !row.missing, "{row:?}");

    installation.produce(stream, 5).await;
    installation.claim(stream, group, presence, 10).await;
    let row = installation.backend.claim_take(&claim_params(stream, group, presence, 10)).await.expect("a claim");
    assert_eq!((row.low, row.high, row.head, row.proven), (5, 5, 5, 5), "everything is taken");
    assert!(!row.contended && !row.pending && !row.missing, "{row:?}");
    assert_eq!(installation.count(&installation.table_of("claim_lease", stream)).await, 1, "no lease on nothing");
}

async fn take_without_width_only_settles(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 5).await;
    let (token, _) = installation.claim(stream, group, presence, 2).await;
    let params = ClaimParams { settled: vec![token], ..claim_params(stream, group, presence, 0) };
    let row = installation.backend.claim_take(&params).await.expect("a claim of nothing");
    assert_eq!(row.low, row.high);
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.claimed, position.settled), (2, 2), "the lease ended and the cursor stayed");
}

async fn take_ends_the_leases_that_are_settled(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 10).await;
    let mut settled = Vec::new();
    for _ in 0..3 {
        settled.push(installation.claim(stream, group, presence, 2).await.0);
    }
    settled.push(LeaseToken::mint());
    let params = ClaimParams { settled: settled.clone(), ..claim_params(stream, group, presence, 3) };
    let row = installation.backend.claim_take(&params).await.expect("a claim");
    assert_eq!((row.low, row.high), (6, 9), "the same exchange takes the next range");
    for token in settled {
        assert!(installation.backend.lease_find(stream, token).await.expect("a look").is_none());
    }
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.claimed, position.settled), (9, 6), "only the new lease is open");
}

async fn take_leaves_other_leases_alone(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 10).await;
    let (kept, _) = installation.claim(stream, group, presence, 2).await;
    let (ended, _) = installation.claim(stream, group, presence, 2).await;
    let params = ClaimParams { settled: vec![ended], ..claim_params(stream, group, presence, 2) };
    installation.backend.claim_take(&params).await.expect("a claim");
    assert!(installation.backend.lease_find(stream, kept).await.expect("a look").is_some());
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!(position.settled, 0, "the oldest open lease holds the settled position");
}

async fn take_keeps_the_groups_apart(installation: &Installation) {
    let stream = installation.stream("events").await;
    let other_stream = installation.stream("others").await;
    let presence = installation.presence().await;
    let first = installation.group(stream, "first").await;
    let second = installation.group(stream, "second").await;
    let elsewhere = installation.group(other_stream, "first").await;
    installation.produce(stream, 10).await;
    installation.produce(other_stream, 3).await;
    assert_eq!(installation.claim(stream, first, presence, 7).await.1.high, 7);
    assert_eq!(installation.claim(stream, second, presence, 4).await.1.high, 4);
    assert_eq!(installation.claim(other_stream, elsewhere, presence, 100).await.1.high, 3);
    let row = installation.claim(stream, first, presence, 100).await.1;
    assert_eq!((row.low, row.high), (7, 10));
    let row = installation.claim(stream, second, presence, 100).await.1;
    assert_eq!((row.low, row.high), (4, 10));
}

async fn take_says_that_a_removed_group_is_missing(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 3).await;
    let groups = installation.table("consumer_group_config");
    installation.execute(&format!("delete from {groups} where id = {group}")).await;
    let params = claim_params(stream, group, presence, 10);
    let row = installation.backend.claim_take(&params).await.expect("a claim answers");
    assert!(row.missing && !row.contended, "{row:?}");
    assert_eq!((row.low, row.high), (0, 0));
    assert!(installation.backend.lease_find(stream, params.token).await.expect("a look").is_none());
}

async fn take_whose_answer_was_lost_is_found_by_its_token(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 5).await;
    let (token, row) = installation.claim(stream, group, presence, 3).await;
    let lease = installation.another().await.lease_find(stream, token).await.expect("a look").expect("a lease");
    assert_eq!((lease.token, lease.low, lease.high, lease.reclaims), (token, row.low, row.high, 0));
    assert_eq!((lease.only_version, lease.done), (None, Vec::new()));
}

/// A token is the lease's key: a claim that is sent again can't make a second lease of it.
async fn take_with_a_used_token_changes_nothing(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 5).await;
    let (token, _) = installation.claim(stream, group, presence, 2).await;
    let again = ClaimParams { token, ..claim_params(stream, group, presence, 2) };
    assert_eq!(harness::code(installation.backend.claim_take(&again).await), "SQLS-0198");
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!(position.claimed, 2, "the cursor stayed");
    let row = installation.claim(stream, group, presence, 2).await.1;
    assert_eq!((row.low, row.high), (2, 4), "the engine goes on");
}

/// Eight processes claim while three others produce.
async fn take_gives_every_id_once_to_eight_claimers(installation: &Installation) {
    const BATCHES: usize = 40;
    const BATCH: usize = 10;
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let handled = Arc::new(AtomicUsize::new(0));
    let mut producers = JoinSet::new();
    for _ in 0..3 {
        let backend = installation.another().await;
        producers.spawn(async move {
            let messages: Vec<_> = (0..BATCH).map(message).collect();
            let mut produced = Vec::new();
            for _ in 0..BATCHES {
                produced.extend(backend.message_produce(stream, 1, 0, &messages).await.expect("a batch"));
            }
            produced
        });
    }
    let mut claimers = JoinSet::new();
    for width in 1..=8 {
        let (backend, handled) = (installation.another().await, handled.clone());
        claimers.spawn(timeout(PATIENCE, consume(backend, stream, group, width * 3, handled, 3 * BATCHES * BATCH)));
    }
    let mut produced: Vec<i64> = producers.join_all().await.into_iter().flatten().map(|id| id.0).collect();
    let consumed = claimers.join_all().await.into_iter().map(|consumed| consumed.expect("all is claimed in time"));
    let mut consumed: Vec<i64> = consumed.flatten().collect();
    produced.sort_unstable();
    consumed.sort_unstable();
    assert_eq!(consumed, produced, "every message was claimed once");
    assert_eq!(installation.count(&installation.table_of("claim_lease", stream)).await, 0, "every lease ended");
}

/// One process: claims and reads ranges, and ends each lease with the next claim, until all is handled.
async fn consume(
    backend: Arc<dyn Backend>,
    stream: StreamId,
    group: GroupId,
    width: i64,
    handled: Arc<AtomicUsize>,
    all: usize,
) -> Vec<i64> {
    let presence = presence_params(harness::LONG);
    backend.presence_enter(&presence).await.expect("a presence");
    let (mut consumed, mut settled) = (Vec::new(), Vec::new());
    while handled.load(Ordering::SeqCst) < all {
        let ended = std::mem::take(&mut settled);
        let params = ClaimParams { settled: ended, ..claim_params(stream, group, presence.id, width) };
        let row = backend.claim_take(&params).await.expect("a claim answers");
        if row.high == row.low {
            pass_the_head(&*backend, stream, group, &row).await;
            continue;
        }
        let messages = backend.message_read(&read_params(stream, row.low, row.high)).await.expect("a range");
        handled.fetch_add(messages.len(), Ordering::SeqCst);
        consumed.extend(ids(&messages));
        settled.push(params.token);
    }
    let params = ClaimParams { settled, ..claim_params(stream, group, presence.id, 0) };
    backend.claim_take(&params).await.expect("the last leases end");
    consumed
}

/// Another claimer moves the cursor while a claim waits for it.
#[tokio::test]
async fn take_says_when_another_claimer_was_in_the_way() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 10).await;
    installation.claim(stream, group, presence, 1).await;

    let cursor = installation.table_of("consumer_group_cursor", stream);
    let mut other = installation.pool().begin().await.expect("a transaction");
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("select from {cursor} for update")))
        .execute(&mut *other)
        .await
        .expect("a lock");
    let params = claim_params(stream, group, presence, 5);
    let (token, backend) = (params.token, installation.backend.clone());
    let claim = tokio::spawn(async move { backend.claim_take(&params).await });
    lock_is_awaited(&installation).await;
    let columns = "consumer_group_id, epoch, committed, proven_head";
    let next = format!(
        "with gone as (delete from {cursor} returning *) \
         insert into {cursor} (seq, claimed, {columns}) select seq + 1, claimed + 2, {columns} from gone"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(next)).execute(&mut *other).await.expect("the cursor moves");
    other.commit().await.expect("a commit");

    let row = timeout(PATIENCE, claim).await.expect("the lock is free").expect("no panic").expect("an answer");
    assert!(row.contended, "{row:?}");
    assert_eq!(row.low, row.high, "a claim that saw an old cursor takes nothing");
    assert!(installation.backend.lease_find(stream, token).await.expect("a look").is_none());
    let row = installation.claim(stream, group, presence, 5).await.1;
    assert_eq!((row.low, row.high), (3, 8), "the next claim goes on behind the other one");
}

/// Another claimer gives up while a claim waits for the cursor.
#[tokio::test]
async fn take_goes_on_when_the_other_claimer_rolls_back() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 10).await;
    installation.claim(stream, group, presence, 1).await;

    let cursor = installation.table_of("consumer_group_cursor", stream);
    let mut other = installation.pool().begin().await.expect("a transaction");
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("delete from {cursor}"))).execute(&mut *other).await.expect("a lock");
    let (params, backend) = (claim_params(stream, group, presence, 5), installation.backend.clone());
    let claim = tokio::spawn(async move { backend.claim_take(&params).await });
    lock_is_awaited(&installation).await;
    other.rollback().await.expect("a rollback");
    let row = timeout(PATIENCE, claim).await.expect("the lock is free").expect("no panic").expect("an answer");
    assert_eq!((row.low, row.high, row.contended), (1, 6, false));
}

/// Returns when a connection to the installation's database waits for a lock.
async fn lock_is_awaited(installation: &Installation) {
    let waiting =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let deadline = Instant::now() + PATIENCE;
    while installation.number(waiting).await == 0 {
        assert!(Instant::now() < deadline, "nobody came to wait for the lock");
    }
}

#[tokio::test]
async fn take_does_not_pass_an_id_that_an_open_transaction_can_still_fill() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    let mut open = installation.pool().begin().await.expect("a transaction");
    let first = installation.postgres().produce_in(&mut open, stream, 1, 0, &[message(0)]).await.expect("a message");
    let second = installation.produce(stream, 1).await;
    assert!(first[0] < second[0]);
    for _ in 0..50 {
        let params = claim_params(stream, group, presence, 10);
        let row = installation.backend.claim_take(&params).await.expect("a claim answers");
        assert_eq!((row.low, row.high), (0, 0), "the open transaction holds the group");
        assert!(row.pending && row.proven < row.head, "{row:?}");
        pass_the_head(&*installation.backend, stream, group, &row).await;
    }
    open.commit().await.expect("a commit");
    let row = installation.claim(stream, group, presence, 10).await.1;
    assert_eq!((row.low, row.high), (0, 2));
}

/// On a server of its own, where nobody else takes transaction ids.
#[tokio::test]
async fn take_is_read_only_when_there_is_nothing_on_postgres() {
    let cluster = Cluster::start(Options::default().with("autovacuum", "off"));
    let installation = harness::postgres_on(&cluster).await;
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    let next_xid = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    let idle = async |case: &str| {
        let before = installation.number(next_xid).await;
        for _ in 0..100 {
            let params = claim_params(stream, group, presence, 10);
            let row = installation.backend.claim_take(&params).await.expect("a claim answers");
            assert_eq!(row.low, row.high, "{case}");
        }
        assert_eq!(installation.number(next_xid).await, before, "idle claims took transaction ids: {case}");
    };
    idle("nothing was ever produced").await;

    installation.produce(stream, 3).await;
    installation.claim(stream, group, presence, 10).await;
    idle("everything is taken").await;

    let mut open = installation.pool().begin().await.expect("a transaction");
    installation.postgres().produce_in(&mut open, stream, 1, 0, &[message(0)]).await.expect("a message");
    let first = claim_params(stream, group, presence, 10);
    assert!(installation.backend.claim_take(&first).await.expect("a claim answers").pending);
    idle("an open transaction holds the group").await;
}

/// Somebody else holds the write lock all the time: who needs it, waits.
#[tokio::test]
async fn take_is_read_only_when_there_is_nothing_on_sqlite() {
    let installation = harness::sqlite().await;
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 3).await;
    installation.claim(stream, group, presence, 10).await;
    let mut other = installation.sqlite_connection().await;
    let lock = other.begin_with("begin immediate").await.expect("the write lock");
    for _ in 0..100 {
        let claim = claim_params(stream, group, presence, 10);
        let idle = timeout(PATIENCE / 12, installation.backend.claim_take(&claim)).await;
        let row = idle.expect("an idle claim does not wait for a writer").expect("an answer");
        assert_eq!((row.low, row.high), (3, 3));
    }
    drop(lock);
}

/// The write lock is another process's when the claim comes: it waits and gets its range.
#[tokio::test]
async fn take_waits_for_the_write_lock_of_another_process() {
    let installation = harness::sqlite().await;
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 3).await;
    let mut other = installation.sqlite_connection().await;
    let lock = other.begin_with("begin immediate").await.expect("the write lock");
    let (params, backend) = (claim_params(stream, group, presence, 10), installation.backend.clone());
    let mut claim = tokio::spawn(async move { backend.claim_take(&params).await });
    assert!(timeout(Duration::from_millis(100), &mut claim).await.is_err(), "the lock is held");
    lock.rollback().await.expect("the lock is free");
    let row = timeout(PATIENCE, claim).await.expect("in time").expect("no panic").expect("an answer");
    assert_eq!((row.low, row.high, row.contended), (0, 3, false));
}
