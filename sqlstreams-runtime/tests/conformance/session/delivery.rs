//! What is produced is handled, with everything right in its `Delivery`.

use std::time::{Duration, SystemTime};

use sqlstreams_runtime::{Delivery, Error, Headers, MessageId, Outcome, ProduceOptions, Produced, Timestamp};
use tokio::sync::mpsc::unbounded_channel;

use super::world::{
    All, Call, Engine, Order, World, group, numbers, on_both_databases, soon, start, take, telling, until,
};

on_both_databases! {
    a_produced_message_is_handled_with_everything_right_in_its_delivery
    headers_travel_beside_the_payload
    a_batch_is_handled_under_the_ids_that_it_answered_in_their_order
    an_empty_batch_produces_nothing
    what_was_produced_in_a_transaction_is_handled_when_that_commits_and_never_if_it_rolls_back
    a_batch_in_a_transaction_is_handled_under_its_ids
    a_producer_outlives_and_shares_its_client
}

/// The clocks of the test and the database may differ by this much.
const SKEW: Duration = Duration::from_secs(5);

group!(Second, Order, "second");

fn check(call: &Call, order: &Order, id: sqlstreams_runtime::MessageId, group: &str) {
    let (payload, delivery) = call;
    assert_eq!(payload, order);
    assert_eq!(delivery.message_id(), id);
    assert_eq!(delivery.stream(), "orders");
    assert_eq!(delivery.group(), group);
    let routing_key = format!("orders.{}.{}", order.region, order.kind);
    assert_eq!(delivery.routing_key(), Some(routing_key.as_str()));
    assert_eq!(delivery.message_key(), Some(order.number.to_string().as_str()));
    assert_eq!(delivery.schema_version(), 1);
    assert_eq!((delivery.attempt(), delivery.failures(), delivery.delays()), (0, 0, 0));
}

fn is_between(delivery: &Delivery, start: SystemTime, end: SystemTime) -> bool {
    let created = delivery.created_at();
    Timestamp::from(start - SKEW) <= created && created <= Timestamp::from(end + SKEW)
}

async fn a_produced_message_is_handled_with_everything_right_in_its_delivery<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let consumer = telling::<Second>(telling::<All>(world.client.consumer(), &sender), &sender);
    let running = start(consumer);
    let began = SystemTime::now();
    // One is produced before anybody waits for it, one when somebody does; one has odd but allowed texts.
    for order in [Order::new(7), Order { note: "ä\n\"\\ \u{1F600} \\u0000".to_owned(), ..Order::of(8, "ü", "x-1_y") }]
    {
        let id = orders.produce(&order).await.expect("an order can be produced");
        let mut handled = take(&mut calls, 2).await;
        handled.sort_by_key(|(_, delivery)| delivery.group().to_owned());
        check(&handled[0], &order, id, "all");
        check(&handled[1], &order, id, "second");
        for (_, delivery) in &handled {
            assert!(is_between(delivery, began, SystemTime::now()), "created at {:?}", delivery.created_at());
            assert_eq!(delivery.headers(), Headers::new());
        }
    }
    let summaries = running.stop().await;
    assert_eq!(summaries.iter().map(|group| group.done).collect::<Vec<_>>(), [2, 2]);
}

fn with(headers: &Headers) -> ProduceOptions {
    ProduceOptions::new().headers(headers.clone())
}

fn id(produced: Result<Produced, Error>) -> MessageId {
    produced.expect("an order can be produced").message_id().expect("it is in the stream")
}

async fn headers_travel_beside_the_payload<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let headers = Headers::from([("trace".to_owned(), "00-ab\n\u{1F600}".to_owned()), (String::new(), String::new())]);
    let first = id(orders.produce_with(&Order::new(1), with(&headers)).await);
    let mut tx = Db::begin(world.client.pool()).await;
    let second = id(orders.produce_in_with(&mut tx, &Order::new(2), with(&headers)).await);
    tx.commit().await.expect("the transaction can be committed");
    let third = id(orders.produce_with(&Order::new(3), with(&Headers::new())).await);

    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender).concurrency(1));
    let handled = take(&mut calls, 3).await;
    for (call, (number, id)) in handled.iter().zip([(1, first), (2, second), (3, third)]) {
        check(call, &Order::new(number), id, "all");
        assert_eq!(call.1.headers(), if number == 3 { Headers::new() } else { headers.clone() });
    }
    running.stop().await;
}

async fn a_batch_is_handled_under_the_ids_that_it_answered_in_their_order<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let batch = Order::many(0..500);
    let ids = orders.produce_batch(&batch).await.expect("a batch can be produced");
    assert_eq!(ids.len(), batch.len());
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    assert_eq!(world.position::<All>().await.head, ids[499].0);

    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    let mut handled = take(&mut calls, 500).await;
    handled.sort_by_key(|(_, delivery)| delivery.message_id());
    for ((call, order), id) in handled.iter().zip(&batch).zip(ids) {
        check(call, order, id, "all");
    }
    running.stop().await;
}

async fn an_empty_batch_produces_nothing<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    assert_eq!(orders.produce_batch([]).await.expect("nothing can be produced"), []);
    let mut tx = Db::begin(world.client.pool()).await;
    assert_eq!(orders.produce_batch_in(&mut tx, []).await.expect("nothing can be produced"), []);
    tx.commit().await.expect("the transaction can be committed");
    assert_eq!(world.position::<All>().await.head, 0);
}

async fn what_was_produced_in_a_transaction_is_handled_when_that_commits_and_never_if_it_rolls_back<Db: Engine>() {
    let world = World::<Db>::new().await;
    world.execute("create table bill (number bigint not null)").await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));

    let mut tx = Db::begin(world.client.pool()).await;
    Db::execute_in(&mut tx, "insert into bill (number) values (1)").await;
    orders.produce_in(&mut tx, &Order::new(1)).await.expect("an order can be produced");
    tx.rollback().await.expect("the transaction can be rolled back");

    let mut tx = Db::begin(world.client.pool()).await;
    Db::execute_in(&mut tx, "insert into bill (number) values (2)").await;
    let id = orders.produce_in(&mut tx, &Order::new(2)).await.expect("an order can be produced");
    assert_eq!(world.numbers("select number from bill").await, [0; 0]);
    tx.commit().await.expect("the transaction can be committed");

    let handled = take(&mut calls, 1).await;
    check(&handled[0], &Order::new(2), id, "all");
    assert_eq!(world.numbers("select number from bill").await, [2]);
    // A later one settles whatever came before it: the first never arrives.
    orders.produce(&Order::new(3)).await.expect("an order can be produced");
    assert_eq!(numbers(&take(&mut calls, 1).await), [3]);
    world.settled::<All>().await;
    assert_eq!(running.stop().await[0].done, 2);
    assert!(calls.try_recv().is_err(), "the message of a rolled back transaction was handled");
}

async fn a_batch_in_a_transaction_is_handled_under_its_ids<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let mut tx = Db::begin(world.client.pool()).await;
    let batch = Order::many(0..20);
    let ids = orders.produce_batch_in(&mut tx, &batch).await.expect("a batch can be produced");
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    let more = orders.produce_in(&mut tx, &Order::new(20)).await.expect("an order can be produced");
    assert!(more > ids[19]);
    tx.commit().await.expect("the transaction can be committed");

    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    let mut handled = take(&mut calls, 21).await;
    handled.sort_by_key(|(_, delivery)| delivery.message_id());
    let ids: Vec<_> = ids.into_iter().chain([more]).collect();
    for ((call, order), id) in handled.iter().zip(&Order::many(0..21)).zip(ids) {
        check(call, order, id, "all");
    }
    running.stop().await;
}

async fn a_producer_outlives_and_shares_its_client<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.another_client().await.producer::<Order>().await.expect("a stream can be registered");
    let also = orders.clone();
    let one = orders.produce(&Order::new(1)).await.expect("an order can be produced");
    drop(orders);
    let two = also.produce(&Order::new(2)).await.expect("an order can be produced");
    assert!(one < two);
    let (sender, mut calls) = unbounded_channel();
    let consumer = world.client.consumer().group_fn::<All, _, _>(move |order, delivery| {
        let sender = sender.clone();
        async move {
            tokio::task::yield_now().await;
            sender.send((order, delivery))?;
            Ok(Outcome::Done)
        }
    });
    let running = start(consumer);
    assert_eq!(numbers(&take(&mut calls, 2).await), [1, 2]);
    running.ask_to_stop();
    until("the consumer's end", async || running.has_stopped()).await;
    let summaries = soon("the summaries", running.end()).await.expect("a consumer stops without an error");
    assert_eq!(summaries[0].done, 2);
}
