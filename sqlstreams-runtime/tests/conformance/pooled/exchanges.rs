//! What a pooled client says: nothing with parameters outside a transaction, and no statement with a name.

use std::time::Duration;

use sqlstreams_runtime::{
    Client, ClientOptions, DeadLetterFilter, Delivery, MessageId, Outcome, ProduceOptions, Produced,
};
use sqlx::Postgres;
use tokio::sync::mpsc::unbounded_channel;

use super::wire::{Said, Wire};
use crate::session::world::{All, Order, numbers, soon, start, take};
use crate::support::database::fresh_database;

const PARSE: u8 = b'P';
const BIND: u8 = b'B';
const QUERY: u8 = b'Q';

/// Everything that a client does, over a wire.
async fn everything_said(options: ClientOptions) -> Vec<Said> {
    let database = fresh_database().await;
    let wire = Wire::start(database.url()).await;
    let url = wire.url(database.url());
    let client = Client::<Postgres>::connect_with(&url, options).await.expect("the client connects");
    client.migrate().await.expect("a fresh installation can be migrated");
    let orders = client.producer_with::<Order>(10).await.expect("a stream can be registered");
    orders.produce_batch(&Order::many(0..30)).await.expect("a batch can be produced");
    let mut tx = client.pool().begin().await.expect("a transaction can begin");
    orders.produce_in(&mut tx, &Order::new(30)).await.expect("a message can be produced in a transaction");
    tx.commit().await.expect("the transaction commits");
    for (number, code) in [(31, None), (31, None), (32, Some("SQLS-0220"))] {
        let keyed = ProduceOptions::new().idempotency_key("one");
        let answer = orders.produce_with(&Order::new(number), keyed).await;
        assert_eq!(answer.err().map(|err| err.code()), code);
    }
    let later = ProduceOptions::new().deliver_after(Duration::from_secs(3600));
    let Ok(Produced::Delayed(id)) = orders.produce_with(&Order::new(33), later).await else { panic!("it is delayed") };
    assert!(orders.cancel(id).await.expect("it can be cancelled"));
    let (sender, mut calls) = unbounded_channel();
    let consumer = client.consumer().group_fn::<All, _, _>(move |order: Order, delivery: Delivery| {
        let answer = match (order.number, delivery.attempt()) {
            (3, 0) => Err("not yet".into()),
            (4, _) => Ok(Outcome::Dead("never".to_owned())),
            _ => Ok(Outcome::Done),
        };
        // The test may have heard enough.
        let _ = sender.send((order, delivery));
        async { answer }
    });
    let running = start(consumer);
    let handled = take(&mut calls, 33).await;
    assert_eq!(numbers(&handled).len(), 33);
    running.stop().await;
    let letters = client.dead_letters::<All>().await.expect("dead letters");
    let listed = letters.list(&DeadLetterFilter::all(), MessageId(0), 10).await.expect("a list");
    assert_eq!(listed.len(), 1);
    letters.redrive(&DeadLetterFilter::all(), Duration::ZERO).await.expect("a redrive");
    soon("the end of the client", client.close()).await;
    wire.said()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooled_client_needs_no_server_for_longer_than_a_transaction() {
    let said = everything_said(ClientOptions::new().pooled(true)).await;
    assert!(said.iter().filter(|said| said.kind == PARSE).count() > 20, "statements were sent");
    let named: Vec<_> = said.iter().filter(|said| said.kind == PARSE && !said.text.is_empty()).collect();
    assert!(named.is_empty(), "statements with names: {named:?}");
    let alone: Vec<_> = said.iter().filter(|said| [PARSE, BIND].contains(&said.kind) && !said.in_transaction).collect();
    assert!(alone.is_empty(), "statements outside a transaction: {alone:?}");
    const OF_A_SESSION: [&str; 5] = ["listen", "set ", "prepare", "create temp", "declare"];
    let queries = said.iter().filter(|said| said.kind == QUERY).map(|said| said.text.trim_start().to_lowercase());
    let kept: Vec<_> = queries.filter(|text| OF_A_SESSION.iter().any(|word| text.starts_with(word))).collect();
    assert!(kept.is_empty(), "what a session would have to keep: {kept:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direct_client_names_its_statements_and_listens() {
    let said = everything_said(ClientOptions::new()).await;
    assert!(said.iter().any(|said| said.kind == PARSE && !said.text.is_empty() && !said.in_transaction));
    assert!(said.iter().any(|said| said.kind == QUERY && said.text.to_lowercase().contains("listen")));
}
