//! A process that lives keeps what it handles, however long that takes.

use std::time::Duration;

use sqlstreams_runtime::Outcome;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::interval;

use super::world::{All, Engine, Order, World, numbers, on_both_databases, soon, start, take, telling};

on_both_databases! {
    a_handler_that_outlasts_the_lease_keeps_its_range_from_others
    a_message_in_trouble_is_kept_as_well
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
