//! A shutdown is bounded, lets running handlers finish, and leaves the rest to others at once.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::{Consumer, Delivery, Kind, Outcome};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::world::{
    All, Engine, LIMIT, Order, Running, Told, World, group, numbers, on_both_databases, soon, start, take, telling,
};

on_both_databases! {
    a_shutdown_under_load_lets_running_handlers_finish_and_hands_the_rest_back_at_once
    a_handler_that_ignores_a_shutdown_is_dropped_at_the_bound_and_spends_no_attempt
    what_failed_beside_a_handler_that_ignores_a_shutdown_keeps_its_attempt
    an_idle_consumer_stops_and_leaves_nothing_behind
    what_was_handled_and_not_yet_settled_is_settled_by_the_shutdown
    a_dropped_consumer_drops_its_handlers_and_others_take_over_when_its_lease_is_over
    a_client_closes_after_its_consumers_have_ended
    a_client_that_closes_ends_its_running_consumers
}

/// Far longer than a test waits: what comes all the same was handed back, and did not expire.
const LEASE: Duration = LIMIT.saturating_mul(10);

/// A consumer whose handlers tell of their start and wait for a permit of `gate` each.
fn gated<Db: Engine>(world: &World<Db>, gate: &Arc<Semaphore>, started: &UnboundedSender<u64>) -> Consumer {
    let (gate, started) = (Arc::clone(gate), started.clone());
    world.client.consumer().lease(LEASE).group_fn::<All, _, _>(move |order: Order, _| {
        let gate = Arc::clone(&gate);
        let _ = started.send(order.number);
        async move {
            gate.acquire().await?.forget();
            Ok(Outcome::Done)
        }
    })
}

async fn hear(told: &mut UnboundedReceiver<u64>, count: usize) -> Vec<u64> {
    let mut heard = Vec::with_capacity(count);
    for _ in 0..count {
        heard.push(soon("a handler", told.recv()).await.expect("the consumer runs"));
    }
    heard.sort_unstable();
    heard
}

async fn a_shutdown_under_load_lets_running_handlers_finish_and_hands_the_rest_back_at_once<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..60)).await.expect("a batch can be produced");
    let (gate, (sender, mut started)) = (Arc::new(Semaphore::new(0)), unbounded_channel());
    let running = start(gated(&world, &gate, &sender).concurrency(4).shutdown_within(LIMIT));
    let first = hear(&mut started, 4).await;

    running.ask_to_stop();
    for number in 60..100 {
        orders.produce(&Order::new(number)).await.expect("an order can be produced");
    }
    assert!(!running.has_stopped(), "running handlers were not waited for");
    gate.add_permits(4);
    let summary = soon("the consumer's end", running.end()).await.expect("a consumer stops without an error");
    assert_eq!((summary[0].done, summary[0].retried, summary[0].dead), (4, 0, 0));
    assert!(started.try_recv().is_err(), "a handler was started after the shutdown began");
    assert_eq!(world.number("select count(*) from {}claim_lease_1 where presence_id is not null").await, 0);
    assert_eq!(world.position::<All>().await.inflight, 0);

    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer().lease(LEASE), &sender));
    let rest = take(&mut calls, 96).await;
    let expected: Vec<_> = (0..100).filter(|number| !first.contains(number)).collect();
    assert_eq!(numbers(&rest), expected);
    assert!(rest.iter().all(|(_, delivery)| (delivery.attempt(), delivery.failures()) == (0, 0)));
    world.settled::<All>().await;
    assert_eq!(running.stop().await[0].done, 96);
    assert!(calls.try_recv().is_err(), "a message was handled twice");
}

/// A consumer whose handlers never end, and two fresh messages and one in trouble that it is handling.
struct Stuck {
    running: Running,
    dropped: UnboundedReceiver<u64>,
}

impl Stuck {
    async fn new<Db: Engine>(world: &World<Db>, consumer: Consumer) -> Self {
        let orders = world.producer::<Order>().await;
        let ((sender, mut dropped), (started_sender, mut started)) = (unbounded_channel(), unbounded_channel());
        let running = start(consumer.group_fn::<All, _, _>(move |order: Order, delivery: Delivery| {
            let told = Told(order.number, sender.clone());
            let _ = started_sender.send(order.number);
            async move {
                let _told = told;
                match order.number {
                    0 if delivery.attempt() == 0 => Err("not yet".into()),
                    3 => Ok(Outcome::Done),
                    _ => std::future::pending().await,
                }
            }
        }));
        orders.produce(&Order::new(0)).await.expect("an order can be produced");
        assert_eq!(hear(&mut started, 2).await, [0, 0]);
        orders.produce_batch(&Order::many(1..4)).await.expect("a batch can be produced");
        assert_eq!(hear(&mut started, 3).await, [1, 2, 3]);
        assert_eq!(hear(&mut dropped, 2).await, [0, 3]);
        Self { running, dropped }
    }

    /// Another consumer gets what was dropped, with no attempt spent; answers what it got beside that.
    async fn is_handled_elsewhere<Db: Engine>(world: &World<Db>) -> Vec<u64> {
        let (sender, mut calls) = unbounded_channel();
        let running = start(telling::<All>(world.client.consumer().lease(LEASE), &sender));
        world.settled::<All>().await;
        running.stop().await;
        let mut handled = Vec::new();
        while let Ok((order, delivery)) = calls.try_recv() {
            let attempts = u32::from(order.number == 0);
            assert_eq!((delivery.attempt(), delivery.failures()), (attempts, attempts), "{order:?}");
            handled.push(order.number);
        }
        handled.sort_unstable();
        assert_eq!(handled.drain(..3).collect::<Vec<_>>(), [0, 1, 2]);
        handled
    }
}

async fn a_handler_that_ignores_a_shutdown_is_dropped_at_the_bound_and_spends_no_attempt<Db: Engine>() {
    let world = World::<Db>::new().await;
    let consumer = world.client.consumer().lease(LEASE).shutdown_within(Duration::from_millis(200));
    let mut stuck = Stuck::new(&world, consumer).await;
    let summary = &stuck.running.stop().await[0];
    assert_eq!(hear(&mut stuck.dropped, 3).await, [0, 1, 2]);
    assert_eq!((summary.done, summary.retried, summary.dead), (1, 1, 0));
    assert_eq!(Stuck::is_handled_elsewhere(&world).await, [0; 0]);
}

async fn what_failed_beside_a_handler_that_ignores_a_shutdown_keeps_its_attempt<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..3)).await.expect("a batch can be produced");
    let (sender, mut ended) = unbounded_channel();
    let consumer = world.client.consumer().lease(LEASE).shutdown_within(Duration::from_millis(200));
    let running = start(consumer.group_fn::<All, _, _>(move |order: Order, _| {
        let told = Told(order.number, sender.clone());
        async move {
            let _told = told;
            match order.number {
                0 => Err("it fails".into()),
                1 => Ok(Outcome::Done),
                _ => std::future::pending().await,
            }
        }
    }));
    assert_eq!(hear(&mut ended, 2).await, [0, 1]);
    let summary = &running.stop().await[0];
    assert_eq!((summary.done, summary.retried, summary.dead), (1, 1, 0));
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer().lease(LEASE), &sender));
    world.settled::<All>().await;
    running.stop().await;
    let mut handled = Vec::new();
    while let Ok((order, delivery)) = calls.try_recv() {
        handled.push((order.number, delivery.attempt(), delivery.failures()));
    }
    handled.sort_unstable();
    assert_eq!(handled, [(0, 1, 1), (2, 0, 0)]);
}

async fn an_idle_consumer_stops_and_leaves_nothing_behind<Db: Engine>() {
    group!(Other, Order, "other");
    let world = World::<Db>::new().await;
    let (sender, _calls) = unbounded_channel();
    let consumer = telling::<Other>(telling::<All>(world.client.consumer(), &sender), &sender);
    let summaries = start(consumer).stop().await;
    assert_eq!(summaries.len(), 2);
    let expired = match Db::KIND {
        "postgres" => "select count(*) from {}presence where expires_at > clock_timestamp()",
        _ => "select count(*) from {}presence where expires_at > unixepoch('subsec') * 1000000",
    };
    assert_eq!(world.number(expired).await, 0, "the process still counts as alive");
}

async fn what_was_handled_and_not_yet_settled_is_settled_by_the_shutdown<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    for round in 0..5 {
        let running = start(telling::<All>(world.client.consumer().lease(LEASE), &sender));
        orders.produce_batch(&Order::many(round * 7..round * 7 + 7)).await.expect("a batch can be produced");
        take(&mut calls, 7).await;
        running.stop().await;
        // Nobody else can have settled it.
        let position = world.position::<All>().await;
        assert_eq!((position.settled, position.claimed), (position.head, position.head));
    }
}

async fn a_dropped_consumer_drops_its_handlers_and_others_take_over_when_its_lease_is_over<Db: Engine>() {
    let world = World::<Db>::new().await;
    let mut stuck = Stuck::new(&world, world.client.consumer().lease(Duration::from_secs(1))).await;
    stuck.running.drop_now().await;
    assert_eq!(hear(&mut stuck.dropped, 3).await, [0, 1, 2]);
    // 3 was handled; whether a heartbeat reported it before the end is a matter of time.
    let again = Stuck::is_handled_elsewhere(&world).await;
    assert!(again.is_empty() || again == [3], "{again:?}");
}

async fn a_client_closes_after_its_consumers_have_ended<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    orders.produce(&Order::new(0)).await.expect("an order can be produced");
    take(&mut calls, 1).await;
    running.stop().await;
    soon("the client's end", world.client.close()).await;
}

async fn a_client_that_closes_ends_its_running_consumers<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    orders.produce(&Order::new(0)).await.expect("an order can be produced");
    take(&mut calls, 1).await;
    soon("the client's end", world.client.close()).await;
    let err = running.end().await.expect_err("a consumer can't go on without its client");
    assert_eq!(err.kind(), Kind::Shutdown, "{err}");
}
