//! Delayed messages as an application uses them.

use std::time::{Duration, SystemTime};

use sqlstreams_runtime::{DelayedId, Error, First, ProduceOptions, Produced, Timestamp};
use tokio::sync::mpsc::unbounded_channel;

use super::world::{All, Engine, Order, World, on_both_databases, start, take, telling, until};

on_both_databases! {
    a_delayed_message_is_handled_when_it_is_due_and_says_so
    a_message_that_is_due_sooner_wakes_the_promoter
    a_message_that_another_process_delays_comes_too
    a_cancelled_message_never_comes
    a_delay_in_a_transaction_commits_with_it
    a_delay_of_more_than_a_century_is_refused
}

fn after(wait: Duration) -> ProduceOptions {
    ProduceOptions::new().deliver_after(wait)
}

fn delayed(produced: Result<Produced, Error>) -> DelayedId {
    produced.expect("an order can be delayed").delayed_id().expect("it waits")
}

const HOUR: Duration = Duration::from_secs(3600);

async fn a_delayed_message_is_handled_when_it_is_due_and_says_so<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    let wait = Duration::from_millis(300);
    let began = SystemTime::now();
    delayed(orders.produce_with(&Order::new(1), after(wait)).await);
    let at = ProduceOptions::new().deliver_at(SystemTime::now() - HOUR);
    assert!(matches!(orders.produce_with(&Order::new(0), at).await, Ok(Produced::Message(_))), "it is due");
    let handled = take(&mut calls, 2).await;
    assert_eq!((handled[0].0.number, handled[1].0.number), (0, 1));
    let delivery = &handled[1].1;
    let scheduled = delivery.scheduled_at().expect("it was scheduled");
    assert!(began.elapsed().expect("time goes on") >= wait, "not before its time");
    assert!(scheduled >= delivery.created_at().plus(wait - Duration::from_millis(2)), "{delivery:?}");
    assert!(delivery.created_at() >= Timestamp::from(began - Duration::from_secs(5)), "{delivery:?}");
    assert_eq!(handled[0].1.scheduled_at(), None);
    world.settled::<All>().await;
    running.stop().await;
}

/// The promoter sleeps towards an hour when something is delayed for less.
async fn a_message_that_is_due_sooner_wakes_the_promoter<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    delayed(orders.produce_with(&Order::new(1), after(HOUR)).await);
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    runs(&world, "delayed_promoter").await;
    for number in 2..5 {
        delayed(orders.produce_with(&Order::new(number), after(Duration::from_millis(5))).await);
        assert_eq!(take(&mut calls, 1).await[0].0.number, number);
    }
    running.stop().await;
    assert_eq!(world.number("select count(*) from {}delayed_message_1").await, 1);
}

/// Waits until somebody runs the worker.
async fn runs<Db: Engine>(world: &World<Db>, name: &str) {
    until(name, async || {
        let workers = world.client.workers().await.expect("workers can be listed");
        workers.iter().any(|worker| worker.name == name && worker.running == 1)
    })
    .await;
}

async fn a_message_that_another_process_delays_comes_too<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    runs(&world, "delayed_promoter").await;
    let other = world.another_client().await.producer::<Order>().await.expect("a producer");
    delayed(other.produce_with(&Order::new(1), after(Duration::from_millis(5))).await);
    assert_eq!(take(&mut calls, 1).await[0].0.number, 1);
    drop(orders);
    running.stop().await;
}

async fn a_cancelled_message_never_comes<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let wait = Duration::from_millis(500);
    let first = delayed(orders.produce_with(&Order::new(1), after(wait).idempotency_key("a")).await);
    delayed(orders.produce_with(&Order::new(2), after(wait)).await);
    assert!(orders.cancel(first).await.expect("an answer"));
    assert!(!orders.cancel(first).await.expect("an answer"));
    let again = orders.produce_with(&Order::new(3), after(HOUR).idempotency_key("a")).await;
    let again = delayed(again);
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    assert_eq!(take(&mut calls, 1).await[0].0.number, 2);

    let mut tx = Db::begin(world.client.pool()).await;
    assert!(orders.cancel_in(&mut tx, again).await.expect("an answer"));
    assert!(!orders.cancel_in(&mut tx, again).await.expect("an answer"));
    tx.rollback().await.expect("a rollback");
    let same = orders.produce_with(&Order::new(3), after(HOUR).idempotency_key("a")).await.expect("an answer");
    assert_eq!(same, Produced::Duplicate(First::Delayed(again)), "it was not cancelled");
    let mut tx = Db::begin(world.client.pool()).await;
    assert!(orders.cancel_in(&mut tx, again).await.expect("an answer"));
    tx.commit().await.expect("a commit");
    assert_eq!(world.number("select count(*) from {}delayed_message_1").await, 0);
    assert_eq!(world.number("select count(*) from {}idempotency_key_1").await, 0);
    running.stop().await;
}

async fn a_delay_in_a_transaction_commits_with_it<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    runs(&world, "delayed_promoter").await;
    let mut tx = Db::begin(world.client.pool()).await;
    delayed(orders.produce_in_with(&mut tx, &Order::new(1), after(Duration::from_millis(1))).await);
    tx.rollback().await.expect("a rollback");
    let mut tx = Db::begin(world.client.pool()).await;
    delayed(orders.produce_in_with(&mut tx, &Order::new(2), after(Duration::from_millis(1))).await);
    tx.commit().await.expect("a commit");
    assert_eq!(take(&mut calls, 1).await[0].0.number, 2);
    world.settled::<All>().await;
    running.stop().await;
    assert!(calls.try_recv().is_err());
}

async fn a_delay_of_more_than_a_century_is_refused<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    for options in [after(Duration::MAX), ProduceOptions::new().deliver_at(Timestamp(i64::MAX))] {
        let refused = orders.produce_with(&Order::new(1), options).await.expect_err("it is too far");
        assert_eq!(refused.code(), "SQLS-0222");
    }
    delayed(orders.produce_with(&Order::new(1), after(HOUR * 24 * 365 * 99)).await);
}
