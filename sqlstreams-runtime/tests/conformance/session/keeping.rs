//! A process that lives keeps what it handles, however long that takes.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::{Delivery, Outcome};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::interval;

use super::world::{All, Engine, Order, Told, World, numbers, on_both_databases, soon, start, take, telling};

on_both_databases! {
    a_handler_that_outlasts_the_lease_keeps_its_range_from_others
    a_message_in_trouble_is_kept_as_well
    a_process_that_could_not_renew_in_time_drops_its_handlers_and_gets_the_messages_again_soon
}

const LEASE: Duration = Duration::from_secs(2);
/// Work that takes longer than twice the lease.
const WORK: u32 = 5;

async fn work() {
    let mut seconds = interval(Duration::from_secs(1));
    for _ in 0..=WORK {
        seconds.tick().await;
    }
}

async fn a_handler_that_outlasts_the_lease_keeps_its_range_from_others<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let (ended_sender, mut ended) = unbounded_channel();
    let told = sender.clone();
    let running = start(world.client.consumer().lease(LEASE).group_fn::<All, _, _>(move |order: Order, delivery| {
        let number = order.number;
        let _ = told.send((order, delivery));
        let ended = ended_sender.clone();
        async move {
            if number < 3 {
                work().await;
            }
            let _ = ended.send(number);
            Ok(Outcome::Done)
        }
    }));
    // Three that take long, and others of their range that don't.
    orders.produce_batch(&Order::many(0..8)).await.expect("a batch can be produced");
    assert_eq!(numbers(&take(&mut calls, 8).await), (0..8).collect::<Vec<_>>());
    let other = start(telling::<All>(world.another_client().await.consumer().lease(LEASE), &sender));
    for _ in 0..8 {
        soon("the end of a handler", ended.recv()).await.expect("no handler was dropped");
    }
    world.settled::<All>().await;
    assert_eq!((running.stop().await[0].done, other.stop().await[0].done), (8, 0));
    assert!(calls.try_recv().is_err(), "a message was handled twice");
}

async fn a_message_in_trouble_is_kept_as_well<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let told = sender.clone();
    let consumer = world.client.consumer().lease(LEASE);
    let running = start(consumer.group_fn::<All, _, _>(move |order: Order, delivery| {
        let attempt = delivery.attempt();
        let _ = told.send((order, delivery));
        async move {
            if attempt == 0 {
                return Err("not yet".into());
            }
            work().await;
            Ok(Outcome::Done)
        }
    }));
    orders.produce(&Order::new(0)).await.expect("an order can be produced");
    take(&mut calls, 2).await;
    let other = start(telling::<All>(world.another_client().await.consumer().lease(LEASE), &sender));
    let position = world.settled::<All>().await;
    assert_eq!((position.dead, position.ready, position.inflight), (0, 0, 0));
    assert_eq!((running.stop().await[0].done, other.stop().await[0].done), (1, 0));
    assert!(calls.try_recv().is_err(), "a message was handled twice");
}

async fn a_process_that_could_not_renew_in_time_drops_its_handlers_and_gets_the_messages_again_soon<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let ((sender, mut dropped), (started_sender, mut started)) = (unbounded_channel(), unbounded_channel());
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    let consumer = world.client.consumer().lease(Duration::from_secs(1));
    let running = start(consumer.group_fn::<All, _, _>(move |order: Order, delivery: Delivery| {
        let told = Told(order.number, sender.clone());
        let _ = started_sender.send((order.number, delivery.attempt()));
        let gate = Arc::clone(&waiting);
        async move {
            let _told = told;
            if order.number == 0 && delivery.attempt() == 0 {
                return Err("not yet".into());
            }
            gate.acquire().await?.forget();
            Ok(Outcome::Done)
        }
    }));
    // One in trouble, two fresh.
    orders.produce(&Order::new(0)).await.expect("an order can be produced");
    for attempt in 0..2 {
        assert_eq!(soon("the message in trouble", started.recv()).await, Some((0, attempt)));
    }
    assert_eq!(soon("its first end", dropped.recv()).await, Some(0));
    orders.produce_batch(&Order::many(1..3)).await.expect("a batch can be produced");
    for number in 1..3 {
        assert_eq!(soon("a fresh message", started.recv()).await, Some((number, 0)));
    }
    // Nobody can renew while this transaction is open.
    let mut holder = Db::begin(world.client.pool()).await;
    Db::execute_in(&mut holder, Db::HOLD_PRESENCES).await;
    let mut ended = Vec::new();
    for _ in 0..3 {
        ended.push(soon("the end of a handler", dropped.recv()).await.expect("the consumer runs"));
    }
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2]);
    holder.rollback().await.expect("the transaction can be rolled back");

    // No other process is there to take them.
    let mut again = Vec::new();
    for _ in 0..3 {
        again.push(soon("a message that was lost", started.recv()).await.expect("the consumer runs"));
    }
    again.sort_unstable();
    assert_eq!(again, [(0, 1), (1, 0), (2, 0)]);
    gate.add_permits(3);
    world.settled::<All>().await;
    running.stop().await;
}
