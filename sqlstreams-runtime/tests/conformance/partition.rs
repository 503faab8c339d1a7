//! Room in the log ahead of its producers: `partition_ensure`, and what producers do when there is none.

use sqlstreams_runtime::Kind;
use sqlstreams_runtime::backend::StreamParams;
use sqlstreams_runtime::identity::{MessageId, StreamId};
use sqlx::AssertSqlSafe;
use tokio::time::timeout;

use crate::harness::{self, Installation, PATIENCE, ids, message, on_both, stream_params};

on_both! {
    ensure_can_be_repeated,
    ensure_makes_room_for_what_comes_next,
}

async fn ensure_can_be_repeated(installation: &Installation) {
    let stream = small(installation, "events", 10).await;
    let bound = installation.backend.partition_ensure(stream).await.expect("room");
    assert_eq!(bound, installation.is_postgres().then_some(MessageId(30)));
    for _ in 0..3 {
        assert_eq!(installation.backend.partition_ensure(stream).await.expect("room"), bound);
    }
}

async fn ensure_makes_room_for_what_comes_next(installation: &Installation) {
    let stream = small(installation, "events", 10).await;
    for _ in 0..10 {
        let bound = installation.backend.partition_ensure(stream).await.expect("room");
        let produced = installation.produce(stream, 15).await;
        if let Some(bound) = bound {
            assert!(produced[14] < bound, "two partitions are ahead of the one in use");
        }
    }
    assert_eq!(ids(&installation.read(stream, 0, i64::MAX).await), (1..=150).collect::<Vec<_>>(), "no id was lost");
}

/// A stream whose partitions hold so few ids.
async fn small(installation: &Installation, name: &str, partition_size: i64) -> StreamId {
    let params = StreamParams { partition_size, ..stream_params(name) };
    installation.backend.stream_register(&params).await.expect("a stream").id
}

/// The numbers of the stream's partitions that hold ids from `from` on.
async fn leaves(installation: &Installation, stream: StreamId, size: i64, from: i64) -> Vec<i64> {
    let query = format!(
        "select (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''(\\d+)''\\) TO \\(''(\\d+)''\\)'))::text \
         from pg_inherits i join pg_class c on c.oid = i.inhrelid \
         where i.inhparent = '{}'::regclass",
        installation.table_of("message_log", stream)
    );
    let bounds = installation.texts(&query).await;
    let mut numbers = Vec::new();
    for bound in bounds {
        let (low, high) = bound.trim_matches(['{', '}']).split_once(',').expect("a range");
        let (low, high): (i64, i64) = (low.parse().expect("a number"), high.parse().expect("a number"));
        assert_eq!((low % size, high), (0, low + size), "a partition of {size} ids");
        if high > from {
            numbers.push(low / size);
        }
    }
    numbers.sort_unstable();
    numbers
}

async fn drop_leaves(installation: &Installation, stream: StreamId, size: i64, from: i64) {
    for number in leaves(installation, stream, size, from).await {
        let leaf = format!("{}_{number}", installation.table_of("message_log", stream));
        installation.execute(&format!("drop table {leaf}")).await;
    }
}

#[tokio::test]
async fn ensure_keeps_two_partitions_ahead() {
    let installation = harness::postgres().await;
    let stream = small(&installation, "events", 10).await;
    assert_eq!(leaves(&installation, stream, 10, 0).await, [0, 1, 2]);
    for (produced, expected) in
        [(8, vec![0, 1, 2]), (1, vec![0, 1, 2, 3]), (9, vec![0, 1, 2, 3]), (1, vec![0, 1, 2, 3, 4])]
    {
        installation.produce(stream, produced).await;
        let bound = installation.backend.partition_ensure(stream).await.expect("room").expect("a bound");
        let found = leaves(&installation, stream, 10, 0).await;
        assert_eq!(found, expected);
        assert_eq!(bound.0, (found[found.len() - 1] + 1) * 10, "the first id without room");
    }
}

#[tokio::test]
async fn ensure_from_eight_processes_makes_each_partition_once() {
    let installation = harness::postgres().await;
    let stream = small(&installation, "events", 10).await;
    for round in 1..=4 {
        drop_leaves(&installation, stream, 10, 0).await;
        let mut processes = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let backend = installation.another().await;
            processes.spawn(async move { backend.partition_ensure(stream).await.expect("room") });
        }
        let bounds = processes.join_all().await;
        assert_eq!(bounds, [Some(MessageId(30)); 8], "round {round}");
        assert_eq!(leaves(&installation, stream, 10, 0).await, [0, 1, 2]);
    }
}

/// PARTITION OF waits for every open producer, also for the caller's own: a deadlock that nobody sees.
#[tokio::test]
async fn ensure_waits_for_no_open_producer() {
    let installation = harness::postgres().await;
    let stream = small(&installation, "events", 10).await;
    drop_leaves(&installation, stream, 10, 10).await;
    let mut open = installation.pool().begin().await.expect("a transaction");
    let statement = format!(
        "insert into {} (schema_version, codec, payload) values (1, 0, '{{}}')",
        installation.table_of("message_log", stream)
    );
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *open).await.expect("a message");

    let mut other = installation.pool().acquire().await.expect("a connection");
    let log = installation.table_of("message_log", stream);
    let naive =
        format!("set lock_timeout = '200ms'; create table {log}_9 partition of {log} for values from (90) to (100)");
    let refused = sqlx::raw_sql(AssertSqlSafe(naive)).execute(&mut *other).await;
    assert!(refused.is_err_and(|err| err.to_string().contains("lock timeout")), "the open producer is in the way");

    let bound = timeout(PATIENCE, installation.backend.partition_ensure(stream)).await.expect("it does not wait");
    assert_eq!(bound.expect("room"), Some(MessageId(30)));
    assert_eq!(leaves(&installation, stream, 10, 0).await, [0, 1, 2]);
    open.commit().await.expect("a commit");
    assert_eq!(ids(&installation.read(stream, 0, 30).await), [1]);
}

/// The producer that finds no partition makes room and goes on; a gap of ids is all that remains.
#[tokio::test]
async fn a_missing_partition_is_made_by_the_producer_that_needs_it() {
    let installation = harness::postgres().await;
    let stream = small(&installation, "events", 10).await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    let mut produced = installation.produce(stream, 3).await;
    for count in [1, 5, 15, 1, 20, 7] {
        let next = produced[produced.len() - 1].0 + 1;
        drop_leaves(&installation, stream, 10, (next + 9) / 10 * 10).await;
        produced.extend(installation.produce(stream, count).await);
    }
    let produced: Vec<i64> = produced.iter().map(|id| id.0).collect();
    assert!(produced.is_sorted_by(|a, b| a < b));
    assert_eq!(ids(&installation.read(stream, 0, i64::MAX).await), produced);
    let mut claimed = Vec::new();
    while claimed.len() < produced.len() {
        let (_, row) = installation.claim(stream, group, presence, 100).await;
        claimed.extend(ids(&installation.read(stream, row.low, row.high).await));
    }
    assert_eq!(claimed, produced, "gaps stop no group");
}

#[tokio::test]
async fn batches_reach_over_several_small_partitions() {
    let installation = harness::postgres().await;
    for size in 2..=10 {
        let stream = small(&installation, &format!("events.of{size}"), size).await;
        let mut produced = Vec::new();
        for batch in 0..24 {
            let count = 1 + (batch * 5) % 23;
            let batch = installation.produce(stream, count).await;
            assert_eq!(batch.len(), count);
            produced.extend(batch.iter().map(|id| id.0));
        }
        assert!(produced.is_sorted_by(|a, b| a < b), "partitions of {size}");
        assert_eq!(ids(&installation.read(stream, 0, i64::MAX).await), produced, "partitions of {size}");
    }
}

#[tokio::test]
async fn a_batch_finds_room_that_is_larger_than_the_room_ahead() {
    let installation = harness::postgres().await;
    let stream = small(&installation, "events", 4).await;
    let mut produced = Vec::new();
    for count in [50, 1, 200, 13] {
        let batch = installation.produce(stream, count).await;
        assert_eq!(batch.len(), count);
        produced.extend(batch.iter().map(|id| id.0));
    }
    assert_eq!(ids(&installation.read(stream, 0, i64::MAX).await), produced);

    let many: Vec<_> = (0..50).map(message).collect();
    let mut refused = 0;
    loop {
        let mut open = installation.pool().begin().await.expect("a transaction");
        match installation.postgres().produce_in(&mut open, stream, 1, 0, &many).await {
            Ok(ids) => {
                assert_eq!(ids.len(), 50);
                break open.commit().await.expect("a commit");
            }
            Err(err) => assert_eq!((err.code(), refused), ("SQLS-0211", 0), "one repetition is enough"),
        }
        refused += 1;
    }
}

#[tokio::test]
async fn single_messages_leave_no_gap_at_the_end_of_a_partition() {
    let installation = harness::postgres().await;
    let stream = small(&installation, "events", 5).await;
    for id in 1..=60 {
        assert_eq!(installation.produce(stream, 1).await, [MessageId(id)], "room is made before it is needed");
    }
}

#[tokio::test]
async fn eight_producers_share_small_partitions() {
    let installation = harness::postgres().await;
    let stream = small(&installation, "events", 4).await;
    let mut producers = tokio::task::JoinSet::new();
    for producer in 1..=8 {
        let backend = installation.another().await;
        producers.spawn(async move {
            let messages: Vec<_> = (0..producer).map(message).collect();
            let mut produced = Vec::new();
            for _ in 0..20 {
                produced.extend(backend.message_produce(stream, 1, 0, &messages).await.expect("room is made"));
            }
            produced
        });
    }
    let mut produced: Vec<i64> = producers.join_all().await.into_iter().flatten().map(|id| id.0).collect();
    produced.sort_unstable();
    assert_eq!(ids(&installation.read(stream, 0, i64::MAX).await), produced);
}

/// The caller's own transaction and another one are open while the partition is made.
#[tokio::test]
async fn a_transaction_without_room_is_told_to_run_again() {
    let installation = harness::postgres().await;
    let stream = small(&installation, "events", 10).await;
    let backend = installation.postgres();
    installation.produce(stream, 9).await;
    drop_leaves(&installation, stream, 10, 10).await;
    let mut other = installation.pool().begin().await.expect("a transaction");
    let statement = format!("delete from {} where id = 0", installation.table_of("message_log", stream));
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *other).await.expect("the producers' lock");

    let mut open = installation.pool().begin().await.expect("a transaction");
    let refused = timeout(PATIENCE, backend.produce_in(&mut open, stream, 1, 0, &[message(0)])).await;
    let refused = refused.expect("room is made without waiting").expect_err("this transaction is spoilt");
    assert_eq!((refused.code(), refused.kind()), ("SQLS-0211", Kind::Conflict));
    open.rollback().await.expect("a rollback");
    assert_eq!(leaves(&installation, stream, 10, 10).await, [1, 2, 3]);

    let mut again = installation.pool().begin().await.expect("a transaction");
    let produced = backend.produce_in(&mut again, stream, 1, 0, &[message(0)]).await.expect("there is room now");
    again.commit().await.expect("a commit");
    other.rollback().await.expect("a rollback");
    assert_eq!(ids(&installation.read(stream, 9, i64::MAX).await), [produced[0].0]);
}

/// A transaction that goes on for many messages makes room ahead of itself.
#[tokio::test]
async fn a_long_transaction_makes_room_ahead_of_itself() {
    let installation = harness::postgres().await;
    let stream = small(&installation, "events", 5).await;
    let mut open = installation.pool().begin().await.expect("a transaction");
    for id in 1..=40 {
        let produced = installation.postgres().produce_in(&mut open, stream, 1, 0, &[message(0)]).await;
        assert_eq!(produced.expect("room"), [MessageId(id)]);
    }
    open.commit().await.expect("a commit");
    assert_eq!(installation.read(stream, 0, i64::MAX).await.len(), 40);
}

#[tokio::test]
async fn a_batch_that_needs_hundreds_of_partitions_gets_them_or_is_refused_with_the_number() {
    let installation = harness::postgres().await;
    let stream = small(&installation, "events", 2).await;
    let produced = installation.produce(stream, 500).await;
    assert_eq!(installation.read(stream, 0, i64::MAX).await.len(), 500);
    assert!(produced.is_sorted_by(|a, b| a < b), "in their order");

    let messages: Vec<_> = (0..4000).map(message).collect();
    let err = installation.backend.message_produce(stream, 1, 0, &messages).await.expect_err("too many partitions");
    assert_eq!((err.kind(), err.code(), err.outcome_known()), (Kind::Message, "SQLS-0322", true));
    assert!(err.to_string().contains("4000 messages") && err.to_string().contains("500 new partitions"), "{err}");
    let mut tx = installation.pool().begin().await.expect("a transaction");
    let refused = installation.postgres().produce_in(&mut tx, stream, 1, 0, &messages).await;
    assert_eq!(refused.expect_err("too many partitions").code(), "SQLS-0322");
    drop(tx);
    assert_eq!(installation.read(stream, 0, i64::MAX).await.len(), 500, "nothing was stored");
    installation.produce(stream, 10).await;
}
