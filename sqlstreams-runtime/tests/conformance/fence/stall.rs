//! A producer that does not end: what it holds back, and how it is named.

use std::time::Duration;

use sqlstreams_runtime::backend::Backend;
use sqlstreams_runtime::{Client, Outcome, StallCause};
use sqlx::Postgres;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::declared::{Note, NoteReaders, Order, OrderReaders};
use super::{Field, NOTHING, end, execute, old_transaction, pid};
use crate::harness::{PATIENCE, unmigrated_postgres};

#[tokio::test]
async fn a_stalled_producer_stalls_only_its_own_stream_and_is_named() {
    let field = Field::new().await;
    let other = field.installation.stream("others").await;
    let other_group = field.installation.group(other, "readers").await;
    let old = old_transaction(field.installation.database().url()).await;
    let mut producer = field.connection("nightly import").await;
    let producer_pid = pid(&mut producer).await;
    execute(&mut producer, "begin; select sqlstreams.produce('notes', '{}')").await;
    field.produce(1).await;
    let produced = field.installation.produce(other, 2).await;
    let presence = field.presence;
    assert_eq!(field.attempts().await, NOTHING);
    let causes = field.backend().cursor_stall(field.stream, field.group).await.expect("producers can be looked up");
    match &causes[..] {
        [StallCause { pid, name, prepared: false, .. }] => {
            assert_eq!((*pid, name.as_str()), (Some(producer_pid), "nightly import"));
        }
        causes => panic!("one transaction is in the way, and not {causes:?}"),
    }
    let causes = field.backend().cursor_stall(other, other_group).await.expect("producers can be looked up");
    assert_eq!(causes, []);
    let (_, row) = field.installation.claim(other, other_group, presence, 10).await;
    assert_eq!(row.high, produced[1].0);
    end(producer, "rollback").await;
    assert_eq!(field.drain().await, [2]);
    end(old, "rollback").await;
}

/// Everything that a running application sees of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_client_names_a_stalled_producer_until_it_ends() {
    let empty = unmigrated_postgres().await;
    let client = Client::<Postgres>::new(empty.pool().clone()).expect("the pool is usable");
    client.migrate().await.expect("a fresh installation can be migrated");
    let notes = client.producer::<Note>().await.expect("a stream can be registered");
    let orders = client.producer::<Order>().await.expect("a stream can be registered");
    let (handled, mut notes_handled) = mpsc::unbounded_channel();
    let (other_handled, mut orders_handled) = mpsc::unbounded_channel();
    let consumer = client
        .consumer()
        .group_fn::<NoteReaders, _, _>(move |note, _| {
            let sent = handled.send(note.n);
            async move { sent.map(|()| Outcome::Done).map_err(Into::into) }
        })
        .group_fn::<OrderReaders, _, _>(move |order, _| {
            let sent = other_handled.send(order.n);
            async move { sent.map(|()| Outcome::Done).map_err(Into::into) }
        });
    let (stop, stopped) = oneshot::channel::<()>();
    let consuming = tokio::spawn(consumer.run_until(async { drop(stopped.await) }));
    let hear = async |receiver: &mut mpsc::UnboundedReceiver<u64>| {
        timeout(PATIENCE, receiver.recv()).await.expect("the message is handled in time").expect("the consumer runs")
    };
    notes.produce(&Note { n: 1 }).await.expect("a message can be produced");
    assert_eq!(hear(&mut notes_handled).await, 1);
    assert!(client.stalls().is_empty());

    let mut importer = super::connection(empty.database().url(), "nightly import").await;
    let importer_pid = pid(&mut importer).await;
    execute(&mut importer, "begin; select sqlstreams.produce('notes', '{\"n\": 2}')").await;
    notes.produce(&Note { n: 3 }).await.expect("a message can be produced");
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let looking = async {
        while client.stalls().is_empty() {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, looking).await.expect("the stall is seen");
    let stalls = client.stalls();
    match &stalls[..] {
        [stall] => {
            assert_eq!((stall.stream.as_str(), stall.group.as_str()), ("notes", "readers"));
            assert!(stall.lasts >= Duration::from_secs(1));
            let causes: Vec<_> = stall.causes.iter().map(|cause| (cause.pid, cause.name.as_str())).collect();
            assert_eq!(causes, [(Some(importer_pid), "nightly import")]);
        }
        stalls => panic!("one stream is stalled, and not {stalls:?}"),
    }
    orders.produce(&Order { n: 4 }).await.expect("a message can be produced");
    assert_eq!(hear(&mut orders_handled).await, 4, "the other stream goes on");
    assert!(notes_handled.try_recv().is_err());

    end(importer, "commit").await;
    let mut both = [hear(&mut notes_handled).await, hear(&mut notes_handled).await];
    both.sort_unstable();
    assert_eq!(both, [2, 3]);
    let looking = async {
        while !client.stalls().is_empty() {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, looking).await.expect("the stall is over");
    drop(stop);
    consuming.await.expect("the consumer ends").expect("the consumer ends well");
    client.close().await;
}
