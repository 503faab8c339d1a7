//! Workers: who runs them, and that they are run.

use std::time::Duration;

use sqlstreams_runtime::{Error, Kind, ProduceOptions, Worker};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::world::{All, Engine, Order, World, on_both_databases, soon, start, take, telling, until};

on_both_databases! {
    a_consumer_runs_the_workers_and_a_manager_takes_over_when_it_stops
    a_consumer_that_is_told_so_leaves_maintenance_to_others
    a_suspended_worker_stays_suspended_over_restarts
    the_stored_position_follows_what_is_settled
    expired_keys_go
    a_manager_on_a_missing_installation_is_refused
}

fn manage<Db: Engine>(world: &World<Db>) -> (CancellationToken, JoinHandle<Result<(), Error>>) {
    let stop = CancellationToken::new();
    let manager = world.client.manager();
    (stop.clone(), tokio::spawn(manager.run_until(stop.cancelled_owned())))
}

async fn workers<Db: Engine>(world: &World<Db>) -> Vec<Worker> {
    world.client.workers().await.expect("workers can be listed")
}

async fn a_consumer_runs_the_workers_and_a_manager_takes_over_when_it_stops<Db: Engine>() {
    let world = World::<Db>::new().await;
    let (sender, _calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    let all_run = async || {
        let workers = workers(&world).await;
        workers.len() == 3 && workers.iter().all(|worker| worker.running == 1)
    };
    until("the consumer runs the workers", all_run).await;
    let names: Vec<_> = workers(&world).await.into_iter().map(|worker| worker.name).collect();
    for name in ["delayed_promoter", "idempotency_sweeper", "cursor_advancer"] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    running.stop().await;
    assert!(workers(&world).await.iter().all(|worker| worker.running == 0), "it made way");
    let (stop, managing) = manage(&world);
    until("the manager runs the workers", all_run).await;
    stop.cancel();
    soon("the manager's end", managing).await.expect("no panic").expect("it stops without an error");
    assert!(workers(&world).await.iter().all(|worker| worker.running == 0), "it made way");
}

async fn a_consumer_that_is_told_so_leaves_maintenance_to_others<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer().maintenance(false), &sender));
    for number in 0..10 {
        orders.produce(&Order::new(number)).await.expect("an order can be produced");
        take(&mut calls, 1).await;
    }
    assert!(workers(&world).await.iter().all(|worker| worker.running == 0 && worker.target == 1));
    running.stop().await;
}

async fn a_suspended_worker_stays_suspended_over_restarts<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let promoter = workers(&world).await.into_iter().find(|worker| worker.name == "delayed_promoter");
    let promoter = promoter.expect("the stream has one").id;
    assert!(world.client.suspend_worker(promoter).await.expect("an answer"));
    let wait = ProduceOptions::new().deliver_after(Duration::from_millis(1));
    orders.produce_with(&Order::new(1), wait).await.expect("an order can be delayed");
    for _ in 0..2 {
        let (stop, managing) = manage(&world);
        until("the other worker runs", async || workers(&world).await.iter().any(|worker| worker.running == 1)).await;
        let suspended = workers(&world).await.into_iter().find(|worker| worker.id == promoter).expect("it is listed");
        assert_eq!((suspended.target, suspended.running), (0, 0));
        stop.cancel();
        soon("the manager's end", managing).await.expect("no panic").expect("it stops without an error");
    }
    assert_eq!(world.number("select count(*) from {}delayed_message_1").await, 1);
    assert!(world.client.resume_worker(promoter).await.expect("an answer"));
    let (stop, managing) = manage(&world);
    until("the message is moved", async || world.number("select count(*) from {}message_log_1").await == 1).await;
    stop.cancel();
    soon("the manager's end", managing).await.expect("no panic").expect("it stops without an error");
}

async fn the_stored_position_follows_what_is_settled<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..50)).await.expect("a batch can be produced");
    let (sender, _calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    let committed = "select coalesce(max(committed), 0) from {}consumer_group_cursor_1";
    until("the position is stored", async || world.number(committed).await == 50).await;
    running.stop().await;
}

async fn expired_keys_go<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let options = ProduceOptions::new().idempotency_key("a").keep_key_for(Duration::ZERO);
    orders.produce_with(&Order::new(1), options).await.expect("an order can be produced");
    orders.produce_with(&Order::new(2), ProduceOptions::new().idempotency_key("b")).await.expect("an order");
    let (stop, managing) = manage(&world);
    until("the key is gone", async || world.number("select count(*) from {}idempotency_key_1").await == 1).await;
    stop.cancel();
    soon("the manager's end", managing).await.expect("no panic").expect("it stops without an error");
}

async fn a_manager_on_a_missing_installation_is_refused<Db: Engine>() {
    let world = World::<Db>::unmigrated().await;
    let (_stop, managing) = manage(&world);
    let refused = soon("the manager's end", managing).await.expect("no panic").expect_err("nothing is installed");
    assert_eq!(refused.kind(), Kind::Migration);
    assert!(world.client.workers().await.is_err());
}
