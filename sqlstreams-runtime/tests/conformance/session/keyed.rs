//! Idempotency keys as an application uses them.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams_runtime::schema::Route;
use sqlstreams_runtime::{DelayedId, Error, First, Kind, MessageId, ProduceOptions, Produced, SegmentError, Stream};
use tokio::sync::mpsc::unbounded_channel;
use tracing::subscriber;

use super::recorder::Recorder;
use super::world::{All, Engine, Order, World, numbers, on_both_databases, soon, start, take, telling, until};

on_both_databases! {
    a_repeated_call_is_answered_with_the_first_id
    another_payload_is_refused_with_the_first_place_that_differs_and_no_value
    the_same_key_twice_in_a_batch_is_stored_once
    a_declared_key_counts_for_every_call
    a_key_in_a_transaction_commits_with_it
    a_conflict_leaves_the_transaction_usable
}

mod on_one_thread {
    use super::{concurrent_keyed_calls_share_inserts, on_both_databases};

    on_both_databases! {
        #[tokio::test]
        concurrent_keyed_calls_share_inserts
    }
}

fn key(key: &str) -> ProduceOptions {
    ProduceOptions::new().idempotency_key(key)
}

fn conflict(result: Result<Produced, Error>) -> String {
    let err = result.expect_err("another payload has the key");
    assert_eq!((err.code(), err.kind(), err.outcome_known()), ("SQLS-0220", Kind::Message, true), "{err:?}");
    format!("{err} {err:?}")
}

async fn a_repeated_call_is_answered_with_the_first_id<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let first = orders.produce_with(&Order::new(1), key("a")).await.expect("an order can be produced");
    assert!(!first.is_duplicate());
    let id = first.message_id().expect("it is in the stream");
    let again = world.another_client().await.producer::<Order>().await.expect("a producer");
    let again = again.produce_with(&Order::new(1), key("a")).await.expect("an answer");
    assert_eq!(again, Produced::Duplicate(First::Message(id)));
    assert_eq!((again.message_id(), again.delayed_id(), again.is_duplicate()), (Some(id), None, true));
    let other = orders.produce_with(&Order::new(1), key("b")).await.expect("another key");
    assert!(!other.is_duplicate());

    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    let handled = take(&mut calls, 2).await;
    assert_eq!(handled[0].1.scheduled_at(), None);
    world.settled::<All>().await;
    running.stop().await;
    assert!(calls.try_recv().is_err(), "nothing was stored twice");
}

async fn another_payload_is_refused_with_the_first_place_that_differs_and_no_value<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_with(&Order::new(1), key("a")).await.expect("an order can be produced");
    let other = Order { note: "hunter2".to_owned(), ..Order::new(1) };
    let text = conflict(orders.produce_with(&other, key("a")).await);
    assert!(text.contains("message 1 of stream \"orders\"") && text.contains("`note`"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("order 1"), "{text}");
    world.execute("delete from {}message_log_1").await;
    let text = conflict(orders.produce_with(&other, key("a")).await);
    assert!(!text.contains("`note`"), "the first payload is gone: {text}");
    let same = orders.produce_with(&Order::new(1), key("a")).await.expect("the key is still known");
    assert!(same.is_duplicate());
}

async fn the_same_key_twice_in_a_batch_is_stored_once<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (one, two) = (Order::new(1), Order::new(2));
    let batch = [(&one, key("q")), (&two, ProduceOptions::new()), (&one, key("q")), (&two, key("q"))];
    let rows = orders.produce_batch_with(batch.clone()).await.expect("a batch");
    let mut ids = HashMap::new();
    for (at, row) in rows.iter().enumerate().take(2) {
        ids.insert(at, row.as_ref().expect("it is new").message_id().expect("it is in the stream"));
    }
    assert_eq!(*rows[2].as_ref().expect("a duplicate"), Produced::Duplicate(First::Message(ids[&0])));
    let refused = rows[3].as_ref().expect_err("another payload");
    assert_eq!(refused.code(), "SQLS-0220");
    assert!(
        refused.to_string().starts_with("payload 3 of the batch: ") && refused.to_string().contains("`number`")
            || refused.to_string().contains("`note`"),
        "{refused}"
    );
    assert_eq!(world.number("select count(*) from {}message_log_1").await, 2);

    let mut tx = Db::begin(world.client.pool()).await;
    let rows = orders.produce_batch_in_with(&mut tx, batch).await.expect("a batch");
    tx.commit().await.expect("a commit");
    let rows: Vec<_> = rows.iter().map(|row| row.as_ref().map(Produced::is_duplicate).ok()).collect();
    assert_eq!(rows, [Some(true), Some(false), Some(true), None]);
    assert!(orders.produce_batch_with([]).await.expect("an empty batch").is_empty());
}

/// As `#[stream(idempotency_key = "request")]` declares it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Payment {
    request: String,
    cents: i64,
}

impl Stream for Payment {
    const NAME: &'static str = "payments";
    const VERSION: u32 = 1;
    const ROUTE: Route = Route::NONE;
    const KEY: Option<&'static str> = None;
    const IDEMPOTENCY_KEY: Option<&'static str> = Some("request");

    fn routing_key(&self) -> Result<Option<String>, SegmentError> {
        Ok(None)
    }

    fn message_key(&self) -> Option<String> {
        None
    }

    fn idempotency_key(&self) -> Option<String> {
        Some(self.request.clone())
    }
}

fn payment(request: &str, cents: i64) -> Payment {
    Payment { request: request.to_owned(), cents }
}

async fn a_declared_key_counts_for_every_call<Db: Engine>() {
    let world = World::<Db>::new().await;
    let payments = world.producer::<Payment>().await;
    let first = payments.produce(&payment("a", 1)).await.expect("a payment can be produced");
    assert_eq!(payments.produce(&payment("a", 1)).await.expect("the first one's id"), first);
    let refused = payments.produce(&payment("a", 2)).await.expect_err("another payload");
    assert!(refused.code() == "SQLS-0220" && refused.to_string().contains("`cents`"), "{refused}");

    let batch = [payment("b", 1), payment("a", 1), payment("b", 1)];
    let ids = payments.produce_batch(&batch).await.expect("a batch");
    assert!(ids[1] == first && ids[0] == ids[2] && ids[0] > first, "{ids:?}");
    let refused = payments.produce_batch(&[payment("c", 1), payment("c", 2)]).await.expect_err("another payload");
    assert!(refused.code() == "SQLS-0220" && refused.to_string().contains("payload 1"), "{refused}");

    let mut tx = Db::begin(world.client.pool()).await;
    assert_eq!(payments.produce_in(&mut tx, &payment("a", 1)).await.expect("the first one's id"), first);
    assert_eq!(payments.produce_batch_in(&mut tx, &batch).await.expect("the first ones' ids"), ids);
    tx.commit().await.expect("a commit");

    // A call's own key goes before the declared one.
    let own = payments.produce_with(&payment("a", 1), key("x")).await.expect("another key");
    assert!(!own.is_duplicate());
    assert_eq!(world.number("select count(*) from {}message_log_1").await, 4);

    let hour = ProduceOptions::new().deliver_after(Duration::from_secs(3600));
    let waits = payments.produce_with(&payment("w", 1), hour).await.expect("a delayed payment");
    assert_eq!(waits, Produced::Delayed(DelayedId(1)));
    let early = payments.produce(&payment("w", 1)).await.expect_err("it has no id in the stream");
    assert_eq!(early.code(), "SQLS-0223");
}

async fn a_key_in_a_transaction_commits_with_it<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let order = Order::new(1);
    let mut tx = Db::begin(world.client.pool()).await;
    orders.produce_in_with(&mut tx, &order, key("a")).await.expect("an order can be produced");
    let own = orders.produce_in_with(&mut tx, &order, key("a")).await.expect("its own key");
    assert!(own.is_duplicate());
    let differs = orders.produce_in_with(&mut tx, &Order::new(2), key("a")).await;
    assert!(conflict(differs).contains("they differ first"), "a first payload that is not committed is read");
    tx.rollback().await.expect("a rollback");
    let first = orders.produce_with(&order, key("a")).await.expect("the key is free");
    assert!(!first.is_duplicate());
    let mut tx = Db::begin(world.client.pool()).await;
    let again = orders.produce_in_with(&mut tx, &order, key("a")).await.expect("an answer");
    assert_eq!(again.message_id(), first.message_id());
    tx.commit().await.expect("a commit");
}

async fn a_conflict_leaves_the_transaction_usable<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_with(&Order::new(1), key("a")).await.expect("an order can be produced");
    let mut tx = Db::begin(world.client.pool()).await;
    conflict(orders.produce_in_with(&mut tx, &Order::new(2), key("a")).await);
    orders.produce_in(&mut tx, &Order::new(3)).await.expect("the transaction goes on");
    tx.commit().await.expect("a commit");
    assert_eq!(world.number("select count(*) from {}message_log_1").await, 2);
}

async fn concurrent_keyed_calls_share_inserts<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let recorder = Recorder::default();
    // The test has one thread, so that this one sees all that is traced.
    let _recording = subscriber::set_default(recorder.clone());
    let batch: Vec<(Order, String)> =
        (0..64).map(|number| (Order::new(number % 32), format!("key {}", number % 32))).collect();
    let calls = batch.iter().map(|(order, name)| orders.produce_with(order, key(name)));
    let results: Vec<_> = join_all(calls).await.into_iter().map(|result| result.expect("an answer")).collect();
    assert_eq!(results.iter().filter(|produced| !produced.is_duplicate()).count(), 32);
    let inserts = recorder.count("message.produce_with");
    assert!((1..=8).contains(&inserts), "64 messages took {inserts} inserts");
    for (one, other) in results.iter().zip(&results[32..]) {
        assert_eq!(one.message_id(), other.message_id());
    }
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    assert_eq!(numbers(&take(&mut calls, 32).await), (0..32).collect::<Vec<_>>());
    running.stop().await;
}

/// A key that an open transaction holds: only its own call waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_calls_that_share_an_insert_only_the_one_whose_key_is_held_waits() {
    let world = World::<sqlx::Postgres>::new().await;
    let orders = world.producer::<Order>().await;
    let mut tx = world.client.pool().begin().await.expect("a transaction");
    let held = orders.produce_in_with(&mut tx, &Order::new(0), key("key 0")).await.expect("a key can be held");
    let calls = (0..20u64).map(|number| {
        let orders = orders.clone();
        tokio::spawn(async move { orders.produce_with(&Order::new(number), key(&format!("key {number}"))).await })
    });
    let mut calls: Vec<_> = calls.collect();
    let waiting = calls.remove(0);
    for call in calls {
        let produced = soon("a call whose key is free", call).await.expect("no panic").expect("an answer");
        assert!(!produced.is_duplicate());
    }
    let plain = soon("a plain call", orders.produce(&Order::new(77))).await.expect("an answer");
    assert!(plain > MessageId(0) && !waiting.is_finished());
    until("the call waits by itself", async || {
        world
            .number(
                "select count(*) from pg_locks where not granted and locktype = 'transactionid'
         and pid in (select pid from pg_stat_activity where datname = current_database())",
            )
            .await
            > 0
    })
    .await;
    tx.commit().await.expect("a commit");
    let waited = soon("the call that waited", waiting).await.expect("no panic").expect("an answer");
    assert!(waited.is_duplicate() && waited.message_id() == held.message_id(), "{waited:?}");
}

/// It began by reading, and another one has written since.
#[tokio::test]
async fn a_deferred_transaction_is_told_how_to_begin() {
    let world = World::<sqlx::Sqlite>::new().await;
    let orders = world.producer::<Order>().await;
    let mut tx = world.client.pool().begin().await.expect("a transaction");
    sqlx::query("select * from sqlstreams_stream_config").fetch_all(&mut *tx).await.expect("a snapshot");
    orders.produce_with(&Order::new(1), key("a")).await.expect("an order can be produced");
    let refused = orders.produce_in_with(&mut tx, &Order::new(2), key("b")).await.expect_err("the snapshot is old");
    assert_eq!((refused.code(), refused.kind()), ("SQLS-0123", Kind::Conflict));
    assert!(refused.to_string().contains("begin immediate"), "{refused}");
    let refused = orders.cancel_in(&mut tx, DelayedId(1)).await.expect_err("the snapshot is old");
    assert_eq!(refused.code(), "SQLS-0123");
}
