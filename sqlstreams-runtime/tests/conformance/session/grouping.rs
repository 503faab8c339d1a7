//! Concurrent single produces share inserts.

use std::collections::HashMap;

use futures_util::future::join_all;
use sqlstreams_runtime::Kind;
use tokio::sync::mpsc::unbounded_channel;
use tracing::subscriber;

use super::recorder::Recorder;
use super::world::{All, Engine, Order, World, numbers, on_both_databases, start, take, telling};

on_both_databases! {
    #[tokio::test]
    concurrent_produces_share_inserts_and_each_gets_the_id_of_its_own_message
    one_bad_message_does_not_fail_those_that_share_its_insert
    a_lone_produce_is_one_insert
}

async fn concurrent_produces_share_inserts_and_each_gets_the_id_of_its_own_message<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let recorder = Recorder::default();
    // The test has one thread, so that this one sees all that is traced.
    let _recording = subscriber::set_default(recorder.clone());
    let tasks = (0..64).map(|number| {
        let orders = orders.clone();
        tokio::spawn(async move { (number, orders.produce(&Order::new(number)).await) })
    });
    let mut produced = HashMap::new();
    for task in join_all(tasks).await {
        let (number, id) = task.expect("producing does not panic");
        produced.insert(id.expect("an order can be produced"), number);
    }
    assert_eq!(produced.len(), 64, "an id was answered twice");
    let inserts = recorder.count("message.produce");
    assert!((1..=16).contains(&inserts), "64 messages took {inserts} inserts");

    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    for (order, delivery) in take(&mut calls, 64).await {
        assert_eq!(produced.remove(&delivery.message_id()), Some(order.number), "the id of another message");
    }
    running.stop().await;
}

async fn one_bad_message_does_not_fail_those_that_share_its_insert<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let refuse = match Db::KIND {
        "postgres" => "alter table {}message_log_1 add check (payload::text not like '%unwelcome%')",
        _ => {
            "create trigger refuse before insert on {}message_log_1 when new.payload like '%unwelcome%'
             begin select raise(abort, 'refused'); end"
        }
    };
    world.execute(refuse).await;
    let recorder = Recorder::default();
    let _recording = subscriber::set_default(recorder.clone());
    let batch: Vec<Order> = (0..8)
        .map(|number| match number {
            3 => Order { note: "unwelcome secret".to_owned(), ..Order::new(number) },
            _ => Order::new(number),
        })
        .collect();
    // Polled in one go, all are queued before the first insert begins.
    let results = join_all(batch.iter().map(|order| orders.produce(order))).await;
    assert_eq!(recorder.count("message.produce"), 9, "one insert for all, and one for each after its failure");
    for (order, result) in batch.iter().zip(results) {
        match result {
            Ok(id) => assert!(id.0 > 0 && order.number != 3, "the bad message was stored"),
            Err(err) => {
                assert_eq!(order.number, 3, "{err}");
                assert_eq!(err.kind(), Kind::Database);
                assert!(!format!("{err} {err:?}").contains("secret"), "{err:?}");
            }
        }
    }
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    assert_eq!(numbers(&take(&mut calls, 7).await), [0, 1, 2, 4, 5, 6, 7]);
    running.stop().await;
}

async fn a_lone_produce_is_one_insert<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let recorder = Recorder::default();
    let _recording = subscriber::set_default(recorder.clone());
    for number in 0..3 {
        orders.produce(&Order::new(number)).await.expect("an order can be produced");
    }
    assert_eq!(recorder.count("message.produce"), 3);
}
