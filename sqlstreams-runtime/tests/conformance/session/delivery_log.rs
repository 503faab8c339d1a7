//! What a group's delivery log keeps of a consumer's work.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::schema::DeliveryLog;
use sqlstreams_runtime::{AttemptStatus, Group, MessageId, Outcome};
use tokio::sync::Notify;

use super::world::{Call, Engine, Order, World, deciding, group, on_both_databases, quick, soon, start, take};

on_both_databases! {
    a_log_of_failures_tells_each_attempt_that_did_not_succeed
    a_log_of_everything_tells_clean_messages_too
    without_a_log_nothing_is_written
    what_is_handled_before_a_shutdown_is_logged_once
}

group!(Failing, Order, "failing", retry: quick(2), delivery_log: DeliveryLog::Failures);
group!(Everything, Order, "everything", retry: quick(2), delivery_log: DeliveryLog::All);
group!(Silent, Order, "silent", retry: quick(2));

/// Handles five orders: 1 succeeds at the second attempt, 2 is put off once, 3 dies of its failures.
async fn handled<Db: Engine, G: Group<Stream = Order>>(world: &World<Db>) -> Vec<MessageId> {
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..5)).await.expect("a batch can be produced");
    let (consumer, mut calls) =
        deciding::<G>(world.client.consumer(), |order, delivery| match (order.number, delivery.attempt()) {
            (1, 0) => Err("not yet".into()),
            (2, 0) => Ok(Outcome::Later(Duration::from_millis(1))),
            (3, attempt) => Err(format!("failure {attempt}").into()),
            _ => Ok(Outcome::Done),
        });
    let running = start(consumer);
    take(&mut calls, 5 + 1 + 1 + 2).await;
    world.settled::<G>().await;
    running.stop().await;
    ids
}

async fn attempts<Db: Engine, G: Group>(world: &World<Db>, id: MessageId) -> Vec<(u32, AttemptStatus, Option<String>)> {
    let attempts = world.client.attempts::<G>(id, 100).await.expect("attempts can be read");
    assert!(attempts.is_sorted_by(|newer, older| newer.at >= older.at), "{attempts:?}");
    attempts.into_iter().map(|attempt| (attempt.attempt, attempt.status, attempt.error)).collect()
}

fn failed(number: u32, status: AttemptStatus, error: &str) -> (u32, AttemptStatus, Option<String>) {
    (number, status, Some(error.to_owned()))
}

async fn a_log_of_failures_tells_each_attempt_that_did_not_succeed<Db: Engine>() {
    let world = World::<Db>::new().await;
    let ids = handled::<Db, Failing>(&world).await;
    for clean in [0, 4] {
        assert_eq!(attempts::<Db, Failing>(&world, ids[clean]).await, []);
    }
    assert_eq!(attempts::<Db, Failing>(&world, ids[1]).await, [failed(1, AttemptStatus::Retry, "not yet")]);
    assert_eq!(attempts::<Db, Failing>(&world, ids[2]).await, [(1, AttemptStatus::Later, None)]);
    let expected = [
        failed(3, AttemptStatus::Dead, "failure 2"),
        failed(2, AttemptStatus::Retry, "failure 1"),
        failed(1, AttemptStatus::Retry, "failure 0"),
    ];
    assert_eq!(attempts::<Db, Failing>(&world, ids[3]).await, expected);
    let newest = world.client.attempts::<Failing>(ids[3], 1).await.expect("attempts can be read");
    assert_eq!((newest.len(), newest[0].attempt), (1, 3));
}

async fn a_log_of_everything_tells_clean_messages_too<Db: Engine>() {
    let world = World::<Db>::new().await;
    let ids = handled::<Db, Everything>(&world).await;
    let done = |number| (number, AttemptStatus::Done, None);
    for clean in [0, 4] {
        assert_eq!(attempts::<Db, Everything>(&world, ids[clean]).await, [done(1)]);
    }
    let expected = [done(2), failed(1, AttemptStatus::Retry, "not yet")];
    assert_eq!(attempts::<Db, Everything>(&world, ids[1]).await, expected);
    assert_eq!(attempts::<Db, Everything>(&world, ids[2]).await, [done(2), (1, AttemptStatus::Later, None)]);
    assert_eq!(attempts::<Db, Everything>(&world, ids[3]).await.len(), 3);
    assert_eq!(world.number("select count(*) from {}claim_lease_1").await, 0, "each range has ended");
}

async fn without_a_log_nothing_is_written<Db: Engine>() {
    let world = World::<Db>::new().await;
    let ids = handled::<Db, Silent>(&world).await;
    assert_eq!(world.number("select count(*) from {}delivery_log_1").await, 0);
    assert_eq!(attempts::<Db, Silent>(&world, ids[3]).await, []);
}

async fn what_is_handled_before_a_shutdown_is_logged_once<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..8)).await.expect("a batch can be produced");
    let stuck = Arc::new(Notify::new());
    let tell = Arc::clone(&stuck);
    let consumer = world.client.consumer().concurrency(1).shutdown_within(Duration::ZERO);
    let running = start(consumer.group_fn::<Everything, _, _>(move |order: Order, _| {
        let tell = Arc::clone(&tell);
        async move {
            if order.number == 5 {
                tell.notify_one();
                std::future::pending::<()>().await;
            }
            Ok(Outcome::Done)
        }
    }));
    soon("the sixth order", stuck.notified()).await;
    running.stop().await;
    let (consumer, mut calls) = deciding::<Everything>(world.client.consumer(), |_, _| Ok(Outcome::Done));
    let running = start(consumer);
    let again: Vec<Call> = take(&mut calls, 3).await;
    assert_eq!(again.len(), 3);
    world.settled::<Everything>().await;
    running.stop().await;
    for id in ids {
        assert_eq!(attempts::<Db, Everything>(&world, id).await, [(1, AttemptStatus::Done, None)], "message {id}");
    }
}
