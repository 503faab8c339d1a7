//! What is traced bears the names of the port's methods.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlstreams_runtime::Outcome;
use tracing::subscriber;

use super::recorder::Recorder;
use super::world::{All, Engine, Order, World, deciding, on_both_databases, start, take, until};

on_both_databases! {
    #[tokio::test]
    spans_are_named_after_the_methods_of_the_port
}

/// The methods of the trait `Backend`, as spans write them.
fn methods() -> BTreeSet<String> {
    let source = include_str!("../../../src/backend/mod.rs");
    let port = source.split_once("pub trait Backend").expect("the port is a trait").1;
    let names = port.split("async fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
    names.map(|name| name.replacen('_', ".", 1)).collect()
}

async fn spans_are_named_after_the_methods_of_the_port<Db: Engine>() {
    let recorder = Recorder::default();
    // The test has one thread, so that this one sees all that is traced.
    let _recording = subscriber::set_default(recorder.clone());
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..6)).await.expect("a batch can be produced");
    let consumer = world.client.consumer().lease(Duration::from_secs(1)).shutdown_within(Duration::ZERO);
    let (consumer, mut calls) = deciding::<All>(consumer, |order, delivery| match order.number {
        0 if delivery.attempt() == 0 => Err("not yet".into()),
        1 => Ok(Outcome::Dead("no".to_owned())),
        _ => Ok(Outcome::Done),
    });
    let running = start(consumer);
    take(&mut calls, 7).await;
    world.settled::<All>().await;
    assert_eq!(world.letters::<All>().await.len(), 1);
    until("a renewal", async || recorder.count("presence.renew") > 0 && recorder.count("wake.wait") > 0).await;
    running.stop().await;

    let seen: BTreeSet<String> = recorder.spans().into_iter().map(str::to_owned).collect();
    let methods = methods();
    assert!(methods.contains("claim.take") && methods.len() > 20, "{methods:?}");
    let strange: Vec<_> = seen.difference(&methods).collect();
    assert!(strange.is_empty(), "no methods of the port: {strange:?}");
    let expected = [
        "claim.take",
        "cursor.position",
        "exception.due",
        "exception.settle",
        "exception.take",
        "group.register",
        "lease.reclaim",
        "lease.settle",
        "letter.list",
        "message.produce",
        "message.read",
        "migration.apply",
        "migration.check",
        "parked.take",
        "presence.enter",
        "presence.leave",
        "presence.renew",
        "stream.register",
        "wake.send",
        "wake.wait",
    ];
    for name in expected {
        assert!(seen.contains(name), "no span {name} in {seen:?}");
    }
    assert!(recorder.warnings().iter().all(|warning| !warning.contains("order 1")), "{:?}", recorder.warnings());
}
