//! As many handlers run at once as the consumer was told, and never more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlstreams_runtime::Outcome;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Barrier, Semaphore};

use super::world::{All, Engine, Order, World, group, on_both_databases, quick, soon, start};

on_both_databases! {
    the_concurrency_is_reached_and_never_exceeded
    messages_in_trouble_and_fresh_ones_share_the_concurrency
    each_group_has_a_concurrency_of_its_own
    a_concurrency_of_one_handles_in_the_order_of_the_ids
    a_handler_that_waits_does_not_keep_others_from_running
    handlers_that_are_ready_at_once_never_exceed_the_concurrency_either
}

/// Counts those who are inside.
#[derive(Default)]
struct Counter {
    inside: AtomicUsize,
    most: AtomicUsize,
}

struct Inside(Arc<Counter>);

impl Counter {
    fn enter(self: &Arc<Self>) -> Inside {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        Inside(Arc::clone(self))
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The next `count` numbers, in order.
async fn hear(handled: &mut UnboundedReceiver<u64>, count: usize) -> Vec<u64> {
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        numbers.push(soon("a message", handled.recv()).await.expect("the consumer runs"));
    }
    numbers.sort_unstable();
    numbers
}

async fn the_concurrency_is_reached_and_never_exceeded<Db: Engine>() {
    const AT_ONCE: usize = 5;
    const MESSAGES: usize = 50;
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..MESSAGES as u64)).await.expect("a batch can be produced");
    let counter = Arc::new(Counter::default());
    let (inside, everybody) = (Arc::clone(&counter), Arc::new(Barrier::new(AT_ONCE)));
    let (sender, mut ended) = unbounded_channel();
    let consumer = world.client.consumer().concurrency(AT_ONCE).group_fn::<All, _, _>(move |order: Order, delivery| {
        let (inside, everybody, sender) = (inside.enter(), Arc::clone(&everybody), sender.clone());
        async move {
            // Nobody leaves before as many have come as may run at once. Half of the messages fail once.
            everybody.wait().await;
            drop(inside);
            let _ = sender.send(order.number);
            if order.number.is_multiple_of(2) && delivery.attempt() == 0 {
                return Err("the first time".into());
            }
            Ok(Outcome::Done)
        }
    });
    let running = start(consumer);
    for _ in 0..MESSAGES + MESSAGES / 2 {
        soon("a full set of handlers", ended.recv()).await;
    }
    assert_eq!(counter.most(), AT_ONCE);
    let summary = &running.stop().await[0];
    assert_eq!((summary.done, summary.retried), (MESSAGES as u64, MESSAGES as u64 / 2));
}

async fn messages_in_trouble_and_fresh_ones_share_the_concurrency<Db: Engine>() {
    group!(Beside, Order, "beside");
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let counter = Arc::new(Counter::default());
    let gate = Arc::new(Semaphore::new(0));
    let (inside, waiting) = (Arc::clone(&counter), Arc::clone(&gate));
    let ((sender, mut started), (beside, mut beside_handled)) = (unbounded_channel(), unbounded_channel());
    let consumer = world.client.consumer().concurrency(3).group_fn::<All, _, _>(move |order: Order, delivery| {
        let (inside, gate, sender) = (inside.enter(), Arc::clone(&waiting), sender.clone());
        async move {
            let _inside = inside;
            if order.number < 3 && delivery.attempt() == 0 {
                return Err("the first time".into());
            }
            let _ = sender.send(order.number);
            gate.acquire().await?.forget();
            Ok(Outcome::Done)
        }
    });
    let running = start(consumer.group_fn::<Beside, _, _>(move |order: Order, _| {
        let _ = beside.send(order.number);
        async { Ok(Outcome::Done) }
    }));
    orders.produce_batch(&Order::many(0..3)).await.expect("a batch can be produced");
    for _ in 0..3 {
        assert!(soon("a message in trouble", started.recv()).await.is_some_and(|number| number < 3));
    }
    // All places are taken by messages in trouble when fresh ones come and could be started.
    orders.produce_batch(&Order::many(3..9)).await.expect("a batch can be produced");
    assert_eq!(hear(&mut beside_handled, 9).await, (0..9).collect::<Vec<_>>());
    world.reaches::<All>("claimed the fresh ones", |position| position.claimed == position.head).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(counter.most(), 3);
    gate.add_permits(9);
    world.settled::<All>().await;
    assert_eq!(counter.most(), 3);
    running.stop().await;
}

async fn each_group_has_a_concurrency_of_its_own<Db: Engine>() {
    group!(Other, Order, "other");
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..12)).await.expect("a batch can be produced");
    let (all, other) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    // Three handlers of each group must meet.
    let meeting = Arc::new(Barrier::new(6));
    let (sender, mut ended) = unbounded_channel();
    let handler = |counter: &Arc<Counter>| {
        let (counter, meeting, sender) = (Arc::clone(counter), Arc::clone(&meeting), sender.clone());
        move |_, _| {
            let (inside, meeting, sender) = (counter.enter(), Arc::clone(&meeting), sender.clone());
            async move {
                meeting.wait().await;
                drop(inside);
                let _ = sender.send(());
                Ok(Outcome::Done)
            }
        }
    };
    let consumer = world.client.consumer().concurrency(3);
    let consumer = consumer.group_fn::<All, _, _>(handler(&all)).group_fn::<Other, _, _>(handler(&other));
    let running = start(consumer);
    for _ in 0..24 {
        soon("three handlers of each group", ended.recv()).await;
    }
    assert_eq!((all.most(), other.most()), (3, 3));
    running.stop().await;
}

async fn a_concurrency_of_one_handles_in_the_order_of_the_ids<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut handled) = unbounded_channel();
    let consumer = world.client.consumer().concurrency(1).group_fn::<All, _, _>(move |order: Order, _| {
        let sender = sender.clone();
        async move {
            if order.number.is_multiple_of(3) {
                tokio::task::yield_now().await;
            }
            let _ = sender.send(order.number);
            Ok(Outcome::Done)
        }
    });
    let running = start(consumer);
    for fifty in 0..4 {
        orders.produce_batch(&Order::many(fifty * 50..fifty * 50 + 50)).await.expect("a batch can be produced");
    }
    for number in 0..200 {
        assert_eq!(soon("a message", handled.recv()).await, Some(number));
    }
    running.stop().await;
}

async fn a_handler_that_waits_does_not_keep_others_from_running<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let gate = Arc::new(Semaphore::new(0));
    let (waiting, (sender, mut handled)) = (Arc::clone(&gate), unbounded_channel());
    let consumer = world.client.consumer().concurrency(2).group_fn::<All, _, _>(move |order: Order, _| {
        let (gate, sender) = (Arc::clone(&waiting), sender.clone());
        async move {
            if order.number == 0 {
                gate.acquire().await?.forget();
            }
            let _ = sender.send(order.number);
            Ok(Outcome::Done)
        }
    });
    let running = start(consumer);
    orders.produce_batch(&Order::many(0..10)).await.expect("a batch can be produced");
    assert_eq!(hear(&mut handled, 9).await, (1..10).collect::<Vec<_>>());
    // Nor those that are claimed later.
    orders.produce_batch(&Order::many(10..500)).await.expect("a batch can be produced");
    assert_eq!(hear(&mut handled, 490).await, (10..500).collect::<Vec<_>>());
    assert!(world.position::<All>().await.settled < 10);
    gate.add_permits(1);
    assert_eq!(soon("the message that waited", handled.recv()).await, Some(0));
    world.settled::<All>().await;
    running.stop().await;
}

async fn handlers_that_are_ready_at_once_never_exceed_the_concurrency_either<Db: Engine>() {
    group!(Quick, Order, "quick", retry: quick(0));
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..400)).await.expect("a batch can be produced");
    let counter = Arc::new(Counter::default());
    let (inside, (sender, mut handled)) = (Arc::clone(&counter), unbounded_channel());
    let consumer = world.client.consumer().concurrency(1).group_fn::<Quick, _, _>(move |_, _| {
        let inside = inside.enter();
        std::thread::yield_now();
        drop(inside);
        let _ = sender.send(());
        async { Ok(Outcome::Done) }
    });
    let running = start(consumer);
    for _ in 0..400 {
        soon("a message", handled.recv()).await;
    }
    assert_eq!(counter.most(), 1);
    running.stop().await;
}
