//! What idempotency keys promise when they meet: in one call, in transactions, and between processes.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::backend::{FirstRow, ProduceWithParams, ProducedRow};
use sqlstreams_runtime::identity::{DelayedId, MessageId, StreamId};
use sqlstreams_runtime::message::{Deliver, ProduceItem};
use sqlstreams_runtime::{Error, Kind, Recovery, Timestamp};
use sqlx::{Postgres, Transaction};
use tokio::sync::Barrier;
use tokio::time::timeout;

use crate::harness::{self, Installation, PATIENCE, code, delayed, ids, item, message, on_both, produce_with};

on_both! {
    messages_with_and_without_keys_keep_their_order_in_the_log_and_in_the_answer,
    keys_are_stored_as_hashes_and_only_when_they_are_given,
    a_large_batch_of_keys_is_answered_in_order,
    a_first_payload_that_is_gone_is_a_conflict_without_it,
    of_many_processes_with_one_key_one_stores_its_message,
    batches_that_share_keys_in_opposite_orders_do_not_wait_for_each_other,
    a_message_that_is_due_goes_straight_into_the_log,
    a_key_answers_the_delayed_id_and_after_promotion_the_message_id,
    nothing_at_all_is_no_error,
}

fn message_id(row: &ProducedRow) -> MessageId {
    match row {
        ProducedRow::Message(id) => *id,
        other => panic!("not a new message of the log: {other:?}"),
    }
}

async fn messages_with_and_without_keys_keep_their_order_in_the_log_and_in_the_answer(installation: &Installation) {
    let stream = installation.stream("events").await;
    installation.produce_with(stream, &[item(Some(3), 3)]).await;
    // Keys in falling order: they are inserted in another order than their messages.
    let batch = [item(Some(9), 0), item(None, 1), item(Some(5), 2), item(Some(3), 3), item(None, 4), item(Some(1), 5)];
    let rows = installation.produce_with(stream, &batch).await;
    assert_eq!(rows[3], ProducedRow::Duplicate(FirstRow::Message(MessageId(1))));
    let new: Vec<_> = [0, 1, 2, 4, 5].map(|place| message_id(&rows[place]).0).to_vec();
    assert!(new.is_sorted_by(|one, next| one < next), "{rows:?}");
    let stored = installation.read(stream, 1, i64::MAX).await;
    assert_eq!(ids(&stored), new);
    for (stored, number) in stored.iter().zip([0, 1, 2, 4, 5]) {
        assert_eq!(stored.payload.as_deref(), Some(message(number).payload.as_bytes()));
    }
    let later = installation.produce(stream, 1).await;
    assert!(later[0].0 > new[4], "a plain message comes after what was drawn");
}

async fn keys_are_stored_as_hashes_and_only_when_they_are_given(installation: &Installation) {
    let stream = installation.stream("events").await;
    installation.produce_with(stream, &[item(None, 1), item(Some(7), 2), item(None, 3)]).await;
    let table = installation.table_of("idempotency_key", stream);
    assert_eq!(installation.count(&table).await, 1);
    let lengths = format!("select cast(length(key) * 100 + length(payload_hash) as bigint) from {table}");
    assert_eq!(installation.number(&lengths).await, 1616);
}

async fn a_large_batch_of_keys_is_answered_in_order(installation: &Installation) {
    const COUNT: usize = 20_000;
    let stream = installation.stream("events").await;
    let batch: Vec<ProduceItem> = (0..COUNT)
        .map(|number| {
            let mut item = item(Some(0), number);
            let key = item.key.as_mut().expect("it has a key");
            // The order of the keys is not that of the messages.
            key.0[..8].copy_from_slice(&(number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
            item
        })
        .collect();
    let first = timeout(PATIENCE, installation.produce_with(stream, &batch)).await.expect("it takes no square of time");
    let first: Vec<_> = first.iter().map(message_id).collect();
    assert!(first.is_sorted_by(|one, next| one < next));
    let again = timeout(PATIENCE, installation.produce_with(stream, &batch)).await.expect("it takes no square of time");
    let duplicates: Vec<_> = first.into_iter().map(|id| ProducedRow::Duplicate(FirstRow::Message(id))).collect();
    assert_eq!(again, duplicates);
}

async fn a_first_payload_that_is_gone_is_a_conflict_without_it(installation: &Installation) {
    let stream = installation.stream("events").await;
    let first = message_id(&installation.produce_with(stream, &[item(Some(1), 1)]).await[0]);
    installation.execute(&format!("delete from {}", installation.table_of("message_log", stream))).await;
    let first = FirstRow::Message(first);
    assert_eq!(installation.produce_with(stream, &[item(Some(1), 1)]).await, [ProducedRow::Duplicate(first)]);
    let differs = installation.produce_with(stream, &[item(Some(1), 2)]).await;
    assert_eq!(differs, [ProducedRow::Conflict { first, payload: None }]);
}

async fn of_many_processes_with_one_key_one_stores_its_message(installation: &Installation) {
    const PROCESSES: usize = 4;
    let stream = installation.stream("events").await;
    let barrier = Arc::new(Barrier::new(PROCESSES));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..PROCESSES {
        let (backend, barrier) = (installation.another().await, Arc::clone(&barrier));
        tasks.spawn(async move {
            let mut rows = Vec::new();
            for round in 0..20 {
                barrier.wait().await;
                let batch = [item(Some(round), 1)];
                rows.extend(backend.message_produce_with(&produce_with(stream, &batch)).await.expect("an answer"));
            }
            rows
        });
    }
    let rows = tasks.join_all().await;
    for round in 0..20 {
        let new: Vec<_> = rows.iter().filter(|rows| matches!(rows[round], ProducedRow::Message(_))).collect();
        assert_eq!(new.len(), 1, "round {round}: {rows:?}");
        let first = ProducedRow::Duplicate(FirstRow::Message(message_id(&new[0][round])));
        assert_eq!(rows.iter().filter(|rows| rows[round] == first).count(), PROCESSES - 1, "round {round}: {rows:?}");
    }
    assert_eq!(installation.count(&installation.table_of("message_log", stream)).await, 20);
}

async fn batches_that_share_keys_in_opposite_orders_do_not_wait_for_each_other(installation: &Installation) {
    let stream = installation.stream("events").await;
    let barrier = Arc::new(Barrier::new(2));
    let mut tasks = tokio::task::JoinSet::new();
    for reversed in [false, true] {
        let (backend, barrier) = (installation.another().await, Arc::clone(&barrier));
        tasks.spawn(async move {
            let mut new = 0;
            for round in 0..60u8 {
                let mut batch: Vec<_> = (0..50u8).map(|key| item(Some(key), 1)).collect();
                batch.iter_mut().for_each(|item| item.key.as_mut().expect("a key").0[15] = round);
                if reversed {
                    batch.reverse();
                }
                barrier.wait().await;
                let rows = backend.message_produce_with(&produce_with(stream, &batch)).await.expect("no deadlock");
                new += rows.iter().filter(|row| matches!(row, ProducedRow::Message(_))).count();
            }
            new
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<usize>(), 60 * 50);
}

async fn a_message_that_is_due_goes_straight_into_the_log(installation: &Installation) {
    let stream = installation.stream("events").await;
    let now = Timestamp(installation.now().await);
    let at = |time| ProduceItem { deliver: Deliver::At(time), ..item(None, 1) };
    let hour = Duration::from_secs(3600);
    let batch = [delayed(Duration::ZERO, 1), at(now.minus(hour)), at(Timestamp(0)), at(now.plus(hour)), item(None, 2)];
    let rows = installation.produce_with(stream, &batch).await;
    let waits =
        |row: &ProducedRow| matches!(row, ProducedRow::Delayed { wait, .. } if *wait <= hour && *wait > hour / 2);
    assert_eq!(rows.iter().map(waits).collect::<Vec<_>>(), [false, false, false, true, false], "{rows:?}");
    assert_eq!(installation.read(stream, 0, i64::MAX).await.len(), 4);
    assert_eq!(installation.count(&installation.table_of("delayed_message", stream)).await, 1);
}

async fn a_key_answers_the_delayed_id_and_after_promotion_the_message_id(installation: &Installation) {
    let stream = installation.stream("events").await;
    let hour = Duration::from_secs(3600);
    let keyed = |number| ProduceItem { deliver: Deliver::After(hour), ..item(Some(4), number) };
    let plain = installation.delay(stream, delayed(hour / 2, 0)).await;
    let id = installation.delay(stream, keyed(1)).await;
    assert_ne!(plain, id);
    let first = FirstRow::Delayed(id);
    assert_eq!(installation.produce_with(stream, &[keyed(1)]).await, [ProducedRow::Duplicate(first)]);
    // The time does not matter to the question whether it is the same message.
    assert_eq!(installation.produce_with(stream, &[item(Some(4), 1)]).await, [ProducedRow::Duplicate(first)]);
    let payload = Some(message(1).payload.into());
    let conflict = ProducedRow::Conflict { first, payload: payload.clone() };
    assert_eq!(installation.produce_with(stream, &[keyed(2)]).await, [conflict]);
    assert_eq!(installation.promote_in(stream, hour * 2).await.promoted, 2);
    let promoted = ids(&installation.read(stream, 0, i64::MAX).await);
    let first = FirstRow::Message(MessageId(promoted[1]));
    assert_eq!(installation.produce_with(stream, &[keyed(1)]).await, [ProducedRow::Duplicate(first)]);
    let conflict = ProducedRow::Conflict { first, payload };
    assert_eq!(installation.produce_with(stream, &[item(Some(4), 2)]).await, [conflict]);
}

async fn nothing_at_all_is_no_error(installation: &Installation) {
    let stream = installation.stream("events").await;
    assert!(installation.produce_with(stream, &[]).await.is_empty());
    let missing = [item(Some(1), 1)];
    let refused = installation.backend.message_produce_with(&produce_with(StreamId(77), &missing)).await;
    assert_eq!(code(refused), "SQLS-0115");
}

/// A transaction that holds a key.
async fn holder(
    installation: &Installation,
    stream: StreamId,
    key: u8,
) -> (Transaction<'static, Postgres>, ProducedRow) {
    let mut tx = installation.pool().begin().await.expect("a transaction");
    let batch = [item(Some(key), 1)];
    let rows = installation.postgres().produce_with_in(&mut tx, &produce_with(stream, &batch)).await;
    (tx, rows.expect("a key can be held").remove(0))
}

/// A call that waits for the holder.
async fn waiter(
    installation: &Installation,
    stream: StreamId,
    key: u8,
) -> tokio::task::JoinHandle<Result<Vec<ProducedRow>, Error>> {
    let backend = installation.postgres().clone();
    let call = tokio::spawn(async move {
        let batch = [item(None, 5), item(Some(key), 1)];
        let params = ProduceWithParams { patience: Some(PATIENCE), ..produce_with(stream, &batch) };
        sqlstreams_runtime::backend::Backend::message_produce_with(&*backend, &params).await
    });
    let waits = "select count(*) from pg_locks where not granted and locktype = 'transactionid'
        and pid in (select pid from pg_stat_activity where datname = current_database())";
    while installation.number(waits).await == 0 {
        assert!(!call.is_finished(), "the call does not wait");
        tokio::task::yield_now().await;
    }
    call
}

/// After the wait the key is neither inserted nor seen by the statement that waited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_another_transaction_commits_meanwhile_is_a_duplicate() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let (tx, first) = holder(&installation, stream, 1).await;
    let call = waiter(&installation, stream, 1).await;
    tx.commit().await.expect("a commit");
    let rows = call.await.expect("no panic").expect("an answer");
    assert!(matches!(rows[0], ProducedRow::Message(_)), "{rows:?}");
    assert_eq!(rows[1], ProducedRow::Duplicate(FirstRow::Message(message_id(&first))));
    assert_eq!(installation.count(&installation.table_of("message_log", stream)).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_another_transaction_rolls_back_is_new() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let (tx, _) = holder(&installation, stream, 1).await;
    let call = waiter(&installation, stream, 1).await;
    tx.rollback().await.expect("a rollback");
    let rows = call.await.expect("no panic").expect("an answer");
    assert!(rows.iter().all(|row| matches!(row, ProducedRow::Message(_))), "{rows:?}");
    assert_eq!(installation.count(&installation.table_of("message_log", stream)).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_key_ends_with_its_patience_and_changes_nothing() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let (tx, _) = holder(&installation, stream, 1).await;
    let batch = [item(None, 5), item(Some(1), 1), item(Some(2), 1)];
    let params = ProduceWithParams { patience: Some(Duration::from_millis(20)), ..produce_with(stream, &batch) };
    let refused = timeout(PATIENCE, installation.backend.message_produce_with(&params)).await.expect("it ends");
    let refused = refused.expect_err("the key is held");
    assert_eq!((refused.kind(), refused.outcome_known()), (Kind::Busy, true), "{refused:?}");
    assert_eq!(refused.code(), "SQLS-0224");
    tx.rollback().await.expect("a rollback");
    assert_eq!(installation.count(&installation.table_of("message_log", stream)).await, 0);
    // The patience was the statement's own.
    let timeouts = "select count(*) from pg_settings where name = 'lock_timeout' and setting <> '0'";
    assert_eq!(installation.number(timeouts).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_repeatable_read_a_key_that_was_stored_meanwhile_is_a_retryable_conflict() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let mut tx = installation.pool().begin_with("begin isolation level repeatable read").await.expect("a transaction");
    sqlx::raw_sql("select 1 from sqlstreams.stream_config").execute(&mut *tx).await.expect("a snapshot");
    installation.produce_with(stream, &[item(Some(1), 1)]).await;
    let batch = [item(Some(1), 1)];
    let refused = installation.postgres().produce_with_in(&mut tx, &produce_with(stream, &batch)).await;
    let refused = refused.expect_err("the snapshot can't see the key");
    assert_eq!((refused.kind(), refused.recovery()), (Kind::Conflict, Recovery::Transient));
    tx.rollback().await.expect("a rollback");
    let mut tx = installation.pool().begin_with("begin isolation level repeatable read").await.expect("a transaction");
    let rows =
        installation.postgres().produce_with_in(&mut tx, &produce_with(stream, &batch)).await.expect("an answer");
    assert_eq!(rows, [ProducedRow::Duplicate(FirstRow::Message(MessageId(1)))]);
}

#[tokio::test]
async fn keys_at_the_end_of_the_last_partition_make_room() {
    let installation = harness::postgres().await;
    let mut params = harness::stream_params("events");
    params.partition_size = 10;
    let stream = installation.backend.stream_register(&params).await.expect("a stream").id;
    let batch: Vec<_> = (0..100).map(|number| item(Some(number), usize::from(number))).collect();
    let rows = installation.produce_with(stream, &batch).await;
    assert!(rows.iter().all(|row| matches!(row, ProducedRow::Message(_))));
    assert_eq!(installation.read(stream, 0, i64::MAX).await.len(), 100);
    let waiting: Vec<_> = (0..100).map(|number| delayed(Duration::from_secs(60), number)).collect();
    let rows = installation.produce_with(stream, &waiting).await;
    assert!(
        rows.iter()
            .enumerate()
            .all(|(at, row)| matches!(row, ProducedRow::Delayed { id: DelayedId(id), .. } if *id == at as i64 + 1)),
        "{rows:?}"
    );
    assert_eq!(installation.promote_in(stream, Duration::from_secs(120)).await.promoted, 100);
    assert_eq!(installation.read(stream, 0, i64::MAX).await.len(), 200);
}

/// Sorting helps within one statement; across the statements of two transactions only one of them can go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_with_the_same_keys_in_opposite_orders_end_with_a_retryable_conflict() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let barrier = Arc::new(Barrier::new(2));
    let mut tasks = tokio::task::JoinSet::new();
    for keys in [[1, 2], [2, 1]] {
        let (backend, pool) = (installation.postgres().clone(), installation.pool().clone());
        let barrier = Arc::clone(&barrier);
        tasks.spawn(async move {
            let mut tx = pool.begin().await.expect("a transaction");
            let first = [item(Some(keys[0]), 1)];
            backend.produce_with_in(&mut tx, &produce_with(stream, &first)).await.expect("its first key is free");
            barrier.wait().await;
            let second = [item(Some(keys[1]), 1)];
            let result = backend.produce_with_in(&mut tx, &produce_with(stream, &second)).await;
            match result {
                Ok(_) => tx.commit().await.expect("a commit"),
                Err(_) => tx.rollback().await.expect("a rollback"),
            }
            result
        });
    }
    let results = timeout(PATIENCE, tasks.join_all()).await.expect("nobody waits for ever");
    let errors: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(errors.len(), 1, "{results:?}");
    assert_eq!((errors[0].kind(), errors[0].recovery()), (Kind::Conflict, Recovery::Transient));
    assert_eq!(installation.count(&installation.table_of("idempotency_key", stream)).await, 2, "the other one went on");
}
