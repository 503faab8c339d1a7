//! A rolling deploy that changes a group's bindings: the old ones hold until no process declares them any more.

use std::time::Duration;

use sqlstreams_runtime::{Consumer, Outcome};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::world::{
    Call, Engine, LIMIT, Order, World, group, numbers, on_both_databases, quick, soon, start, take, telling, until,
};

on_both_databases! {
    new_bindings_wait_for_the_old_build_and_lose_nothing
    a_crashed_old_build_leaves_its_range_to_the_old_bindings
    an_old_build_that_restarts_joins_what_is_stored
    a_build_whose_bindings_were_replaced_follows_the_stored_ones
}

// One group, of two builds.
group!(Old, Order, "rolling", bindings: &["orders.eu.*"], retry: quick(3), timeout: LIMIT.saturating_mul(10));
group!(New, Order, "rolling", bindings: &["orders.us.*"], retry: quick(3), timeout: LIMIT.saturating_mul(10));

/// Orders of the eu with the even numbers of a range, of the us with the odd ones.
fn mixed(range: std::ops::Range<u64>) -> Vec<Order> {
    range.map(|number| Order::of(number, if number % 2 == 0 { "eu" } else { "us" }, "created")).collect()
}

fn of_eu(range: std::ops::Range<u64>) -> Vec<u64> {
    range.filter(|number| number % 2 == 0).collect()
}

fn of_us(range: std::ops::Range<u64>) -> Vec<u64> {
    range.filter(|number| number % 2 == 1).collect()
}

/// A consumer whose heart beats quickly.
fn beating(consumer: Consumer) -> Consumer {
    consumer.lease(Duration::from_secs(2))
}

async fn stores<Db: Engine>(world: &World<Db>, pattern: &str) {
    let query = format!("select count(*) from {{}}binding_config_1 where pattern = '{pattern}'");
    until("other bindings", async || world.number(&query).await == 1).await;
}

fn nothing_more(calls: &mut UnboundedReceiver<Call>) {
    if let Ok((order, _)) = calls.try_recv() {
        panic!("order {} was handled under the wrong bindings, or twice", order.number);
    }
}

async fn new_bindings_wait_for_the_old_build_and_lose_nothing<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let (first, second) = (world.another_client().await, world.another_client().await);
    let old = start(telling::<Old>(beating(first.consumer()), &sender));
    orders.produce_batch(&mixed(0..40)).await.expect("a batch");
    assert_eq!(numbers(&take(&mut calls, 20).await), of_eu(0..40));

    let new = start(telling::<New>(beating(second.consumer()), &sender));
    let waits = "select count(*) from {}presence where cast(readable as text) like '%orders.us.%'";
    until("the new build", async || world.number(waits).await == 1).await;
    for batch in 1..20 {
        orders.produce_batch(&mixed(batch * 40..batch * 40 + 40)).await.expect("a batch");
        assert_eq!(numbers(&take(&mut calls, 20).await), of_eu(batch * 40..batch * 40 + 40), "of either build");
    }
    let stored = world.number("select count(*) from {}binding_config_1 where pattern = 'orders.eu.*'").await;
    assert_eq!(stored, 1, "the old build still lives");

    old.stop().await;
    stores(&world, "orders.us.*").await;
    for batch in 20..25 {
        orders.produce_batch(&mixed(batch * 40..batch * 40 + 40)).await.expect("a batch");
        assert_eq!(numbers(&take(&mut calls, 20).await), of_us(batch * 40..batch * 40 + 40));
    }
    new.stop().await;
    nothing_more(&mut calls);
}

async fn a_crashed_old_build_leaves_its_range_to_the_old_bindings<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (began, mut begun) = unbounded_channel();
    let first = world.another_client().await;
    let hanging = beating(first.consumer()).group_fn::<Old, _, _>(move |order: Order, _| {
        let _ = began.send(order.number);
        async {
            std::future::pending::<()>().await;
            Ok(Outcome::Done)
        }
    });
    let old = start(hanging);
    orders.produce_batch(&mixed(0..8)).await.expect("a batch");
    for _ in 0..4 {
        soon("a handler's call", begun.recv()).await.expect("the consumer runs");
    }
    let (sender, mut calls) = unbounded_channel();
    let second = world.another_client().await;
    let new = start(telling::<New>(beating(second.consumer()), &sender));
    let waits = "select count(*) from {}presence where cast(readable as text) like '%orders.us.%'";
    until("the new build", async || world.number(waits).await == 1).await;
    old.drop_now().await;
    assert_eq!(numbers(&take(&mut calls, 4).await), of_eu(0..8), "the crashed build's range");
    stores(&world, "orders.us.*").await;
    orders.produce_batch(&mixed(8..16)).await.expect("a batch");
    assert_eq!(numbers(&take(&mut calls, 4).await), of_us(8..16));
    new.stop().await;
    nothing_more(&mut calls);
}

async fn an_old_build_that_restarts_joins_what_is_stored<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let (first, second) = (world.another_client().await, world.another_client().await);
    start(telling::<Old>(beating(first.consumer()), &sender)).stop().await;
    let new = start(telling::<New>(beating(second.consumer()), &sender));
    stores(&world, "orders.us.*").await;
    let old = start(telling::<Old>(beating(first.consumer()), &sender));
    let waits = "select count(*) from {}presence where cast(readable as text) like '%orders.eu.%'";
    until("the old build", async || world.number(waits).await == 2).await;
    for batch in 0..10 {
        orders.produce_batch(&mixed(batch * 40..batch * 40 + 40)).await.expect("a batch");
        assert_eq!(numbers(&take(&mut calls, 20).await), of_us(batch * 40..batch * 40 + 40), "of either build");
    }
    // A rollback: the new build goes, and the old one's bindings come back.
    new.stop().await;
    stores(&world, "orders.eu.*").await;
    orders.produce_batch(&mixed(400..440)).await.expect("a batch");
    assert_eq!(numbers(&take(&mut calls, 20).await), of_eu(400..440));
    old.stop().await;
    nothing_more(&mut calls);
}

async fn a_build_whose_bindings_were_replaced_follows_the_stored_ones<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let old = start(telling::<Old>(world.client.consumer().lease(Duration::from_secs(1)), &sender));
    orders.produce_batch(&mixed(0..20)).await.expect("a batch");
    assert_eq!(numbers(&take(&mut calls, 10).await), of_eu(0..20));
    // As a newer build does while this one is away.
    world.execute("update {}binding_config_1 set pattern = 'orders.us.*'").await;
    let declares = "select count(*) from {}presence where cast(readable as text) like '%bindings%'";
    until("the old build follows", async || world.number(declares).await == 0).await;
    orders.produce_batch(&mixed(20..40)).await.expect("a batch");
    assert_eq!(numbers(&take(&mut calls, 10).await), of_us(20..40));
    old.stop().await;
    assert_eq!(world.number("select count(*) from {}binding_config_1 where pattern = 'orders.us.*'").await, 1);
    nothing_more(&mut calls);
}
