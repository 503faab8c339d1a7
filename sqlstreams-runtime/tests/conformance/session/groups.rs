//! Several groups, bindings, where groups begin, and where they stand.

use std::marker::PhantomData;
use std::time::Duration;

use sqlstreams_runtime::schema::{GroupConfig, Start};
use sqlstreams_runtime::{BoxError, Delivery, Group, Handler, Outcome};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::world::{
    All, Call, Engine, Order, World, deciding, group, numbers, on_both_databases, quick, start, take, telling,
};

on_both_databases! {
    several_groups_in_one_consumer_each_get_the_messages_that_they_are_bound_to
    a_group_of_which_no_message_is_bound_passes_them_all
    a_new_group_starts_where_it_is_told_to
    a_stored_group_goes_on_where_it_is_whatever_start_it_is_told
    two_consumers_of_one_client_share_a_group
    the_position_of_a_group_that_has_handled_everything_is_the_head
    the_position_of_a_group_is_held_by_its_first_message_in_trouble_and_not_by_the_dead
    bindings_that_are_declared_anew_replace_the_stored_ones
}

group!(OfEu, Order, "of-eu", bindings: &["orders.eu.*"]);
group!(CreatedOrUs, Order, "created-or-us", bindings: &["orders.*.created", "orders.us.**"]);
group!(OfNowhere, Order, "of-nowhere", bindings: &["orders.nowhere.**"]);
group!(FromHead, Order, "from-head", start: Start::Head);
group!(FromId, Order, "from-id");
group!(FromTime, Order, "from-time");
group!(FromFuture, Order, "from-future");

/// A group with a handler that tells of each call.
struct Told<G>(UnboundedSender<Call>, PhantomData<fn() -> G>);

impl<G> Told<G> {
    fn new(calls: &UnboundedSender<Call>) -> Self {
        Self(calls.clone(), PhantomData)
    }
}

impl<G: Group<Stream = Order>> Group for Told<G> {
    type Stream = Order;
    const NAME: &'static str = G::NAME;
    const CONFIG: GroupConfig = G::CONFIG;
}

impl<G: Group<Stream = Order>> Handler for Told<G> {
    async fn handle(&self, order: Order, delivery: Delivery) -> Result<Outcome, BoxError> {
        self.0.send((order, delivery))?;
        Ok(Outcome::Done)
    }
}

fn of_group<G: Group>(calls: &[Call]) -> Vec<u64> {
    let calls: Vec<_> = calls.iter().filter(|(_, delivery)| delivery.group() == G::NAME).cloned().collect();
    numbers(&calls)
}

async fn several_groups_in_one_consumer_each_get_the_messages_that_they_are_bound_to<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let keys = [("eu", "created"), ("us", "created"), ("us", "paid"), ("eu", "paid"), ("eur", "paid"), ("_u", "x_y")];
    let batch: Vec<_> = (0..60).zip(keys.into_iter().cycle()).map(|(n, key)| Order::of(n, key.0, key.1)).collect();
    orders.produce_batch(&batch).await.expect("a batch can be produced");
    let expected = |is_bound: fn(&Order) -> bool| -> Vec<u64> {
        batch.iter().filter(|order| is_bound(order)).map(|order| order.number).collect()
    };

    let (sender, mut calls) = unbounded_channel();
    let consumer = telling::<All>(world.client.consumer(), &sender);
    let consumer = telling::<CreatedOrUs>(telling::<OfEu>(consumer, &sender), &sender);
    let running = start(consumer);
    let handled = take(&mut calls, 60 + 20 + 30).await;
    assert_eq!(of_group::<All>(&handled), (0..60).collect::<Vec<_>>());
    assert_eq!(of_group::<OfEu>(&handled), expected(|order| order.region == "eu"));
    assert_eq!(of_group::<CreatedOrUs>(&handled), expected(|order| order.region == "us" || order.kind == "created"));
    for position in [world.settled::<All>().await, world.settled::<OfEu>().await, world.settled::<CreatedOrUs>().await]
    {
        assert_eq!(position.claimed, position.head);
    }
    let done: Vec<_> = running.stop().await.into_iter().map(|summary| (summary.group, summary.done)).collect();
    assert_eq!(done, [("all".to_owned(), 60), ("of-eu".to_owned(), 20), ("created-or-us".to_owned(), 30)]);
    assert!(calls.try_recv().is_err(), "a message was handled that is not bound, or twice");
}

async fn a_group_of_which_no_message_is_bound_passes_them_all<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..300)).await.expect("a batch can be produced");
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<OfNowhere>(world.client.consumer(), &sender));
    let position = world.settled::<OfNowhere>().await;
    assert!(position.head >= 300);
    orders.produce(&Order::of(300, "nowhere", "created")).await.expect("an order can be produced");
    assert_eq!(numbers(&take(&mut calls, 1).await), [300]);
    running.stop().await;
}

async fn a_new_group_starts_where_it_is_told_to<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..10)).await.expect("a batch can be produced");
    // Message n is from n hours after 1970.
    let hours = match Db::KIND {
        "postgres" => "timestamptz 'epoch' + (id - {first}) * interval '1 hour'",
        _ => "(id - {first}) * 3600000000",
    };
    let hours = hours.replace("{first}", &ids[0].0.to_string());
    world.execute(&format!("update {{}}message_log_1 set created_at = {hours}")).await;
    let hour = |hours: i64| hours * 3_600_000_000;

    let (sender, mut calls) = unbounded_channel();
    let consumer = telling::<FromHead>(telling::<All>(world.client.consumer(), &sender), &sender);
    let consumer = consumer
        .group_from(Told::<FromId>::new(&sender), Start::Id(ids[4].0))
        .group_from(Told::<FromTime>::new(&sender), Start::Time(hour(7)))
        .group_from(Told::<FromFuture>::new(&sender), Start::Time(hour(7) * 1_000_000));
    let running = start(consumer);
    let handled = take(&mut calls, 10 + 6 + 3).await;
    // Produced when all have their start.
    orders.produce(&Order::new(10)).await.expect("an order can be produced");
    let last = take(&mut calls, 5).await;
    let handled: Vec<_> = handled.into_iter().chain(last).collect();
    assert_eq!(of_group::<All>(&handled), (0..=10).collect::<Vec<_>>());
    assert_eq!(of_group::<FromId>(&handled), [4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(of_group::<FromTime>(&handled), [7, 8, 9, 10]);
    assert_eq!(of_group::<FromHead>(&handled), [10]);
    assert_eq!(of_group::<FromFuture>(&handled), [10]);
    running.stop().await;
}

async fn a_stored_group_goes_on_where_it_is_whatever_start_it_is_told<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..10)).await.expect("a batch can be produced");
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<FromId>(world.client.consumer(), &sender));
    assert_eq!(numbers(&take(&mut calls, 10).await), (0..10).collect::<Vec<_>>());
    running.stop().await;
    orders.produce(&Order::new(10)).await.expect("an order can be produced");
    for start_at in [Start::Beginning, Start::Head, Start::Id(3), Start::Time(0)] {
        let consumer = world.client.consumer().group_from(Told::<FromId>::new(&sender), start_at);
        let running = start(consumer);
        let handled = numbers(&take(&mut calls, 1).await);
        world.settled::<FromId>().await;
        running.stop().await;
        orders.produce(&Order::new(handled[0] + 1)).await.expect("an order can be produced");
    }
    assert!(calls.try_recv().is_err(), "a message was handled twice");
    assert_eq!(world.position::<FromId>().await.settled + 1, world.position::<FromId>().await.head);
}

async fn two_consumers_of_one_client_share_a_group<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let one = start(telling::<All>(world.client.consumer(), &sender));
    let other = start(telling::<All>(world.client.consumer(), &sender));
    for hundred in 0..10 {
        orders.produce_batch(&Order::many(hundred * 100..hundred * 100 + 100)).await.expect("a batch can be produced");
    }
    assert_eq!(numbers(&take(&mut calls, 1000).await), (0..1000).collect::<Vec<_>>());
    let done = one.stop().await[0].done + other.stop().await[0].done;
    assert_eq!(done, 1000);
    assert!(calls.try_recv().is_err(), "a message was handled twice");
}

async fn the_position_of_a_group_that_has_handled_everything_is_the_head<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let empty = world.position::<All>().await;
    assert_eq!((empty.head, empty.claimed, empty.settled), (0, 0, 0));
    let ids = orders.produce_batch(&Order::many(0..30)).await.expect("a batch can be produced");
    let before = world.position::<All>().await;
    assert_eq!((before.head, before.claimed, before.settled), (ids[29].0, 0, 0));

    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    take(&mut calls, 30).await;
    let running_position = world.settled::<All>().await;
    running.stop().await;
    let after = world.position::<All>().await;
    assert_eq!(after, running_position);
    assert_eq!((after.head, after.claimed, after.settled), (ids[29].0, ids[29].0, ids[29].0));
    assert_eq!((after.ready, after.inflight, after.dead, after.parked), (0, 0, 0, 0));
    assert_eq!(world.number("select count(*) from {}claim_lease_1").await, 0);
    assert_eq!(world.number("select count(*) from {}exception_queue_1").await, 0);
}

async fn the_position_of_a_group_is_held_by_its_first_message_in_trouble_and_not_by_the_dead<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..30)).await.expect("a batch can be produced");
    let (consumer, mut calls) = deciding::<All>(world.client.consumer(), |order, _| match order.number {
        5 => Ok(Outcome::Dead("no".to_owned())),
        12 | 20 => Ok(Outcome::Later(Duration::from_secs(3600))),
        _ => Ok(Outcome::Done),
    });
    let running = start(consumer);
    take(&mut calls, 30).await;
    let position = world.reaches::<All>("its messages in trouble", |position| position.ready == 2).await;
    assert_eq!((position.head, position.claimed), (ids[29].0, ids[29].0));
    assert_eq!(position.settled, ids[12].0 - 1);
    assert_eq!((position.inflight, position.dead, position.parked), (0, 1, 0));
    running.stop().await;
}

async fn bindings_that_are_declared_anew_replace_the_stored_ones<Db: Engine>() {
    group!(Before, Order, "rebound", bindings: &["orders.eu.*"], retry: quick(1));
    group!(After, Order, "rebound", bindings: &["orders.us.*"], retry: quick(2));
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<Before>(world.client.consumer(), &sender));
    orders.produce_batch(&[Order::of(1, "us", "x"), Order::of(2, "eu", "x")]).await.expect("a batch can be produced");
    assert_eq!(numbers(&take(&mut calls, 1).await), [2]);
    world.settled::<Before>().await;
    running.stop().await;
    let running = start(telling::<After>(world.client.consumer(), &sender));
    orders.produce_batch(&[Order::of(3, "eu", "x"), Order::of(4, "us", "x")]).await.expect("a batch can be produced");
    assert_eq!(numbers(&take(&mut calls, 1).await), [4]);
    world.settled::<After>().await;
    running.stop().await;
    assert!(calls.try_recv().is_err(), "a message was handled that is not bound");
}
