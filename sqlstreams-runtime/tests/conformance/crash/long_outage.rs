//! A database that is away for longer than a lease lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlstreams_runtime::{Client, Outcome};
use sqlx::Postgres;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::proxy::Proxy;
use super::{Running, blocking, settled};
use crate::fence::declared::{Note, NoteReaders};
use crate::harness::PATIENCE;
use crate::support::cluster::{Cluster, Mode, Options};
use crate::support::database::fresh_database;

/// Less than the ten seconds after which any lease is freed that its owner does not name.
const SOON: Duration = Duration::from_secs(9);

#[derive(Debug, PartialEq, Eq)]
enum Said {
    Started,
    Dropped,
    Done,
}

/// Tells how a handler ended.
struct Ending {
    done: bool,
    says: UnboundedSender<Said>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Nobody hears it at the test's end.
        let _ = self.says.send(if self.done { Said::Done } else { Said::Dropped });
    }
}

/// A consumer whose handler hangs until it is told not to.
struct Hanging {
    client: Client<Postgres>,
    consumer: Running,
    hangs: Arc<AtomicBool>,
    said: UnboundedReceiver<Said>,
}

impl Hanging {
    async fn start(client: Client<Postgres>) -> Self {
        client.migrate().await.expect("a fresh installation can be migrated");
        let notes = client.producer::<Note>().await.expect("a stream can be registered");
        let (says, said) = unbounded_channel();
        let hangs = Arc::new(AtomicBool::new(true));
        let still = hangs.clone();
        let consumer = client.consumer().lease(Duration::from_secs(1));
        let consumer = consumer.group_fn::<NoteReaders, _, _>(move |_, _| {
            let (says, hangs) = (says.clone(), still.load(Ordering::Acquire));
            async move {
                let mut ending = Ending { done: false, says };
                ending.says.send(Said::Started)?;
                if hangs {
                    std::future::pending::<()>().await;
                }
                ending.done = true;
                Ok(Outcome::Done)
            }
        });
        let mut hanging = Self { consumer: Running::start(consumer), client, hangs, said };
        notes.produce(&Note { n: 1 }).await.expect("a message can be produced");
        hanging.hear(Said::Started, PATIENCE).await;
        hanging
    }

    async fn hear(&mut self, said: Said, limit: Duration) {
        let heard = timeout(limit, self.said.recv()).await;
        assert_eq!(heard.unwrap_or_else(|_| panic!("{said:?} did not come in {limit:?}")), Some(said));
    }

    /// The process can't renew, and must suppose that others have its range.
    async fn gives_up(&mut self) {
        self.hear(Said::Dropped, PATIENCE).await;
        self.hangs.store(false, Ordering::Release);
    }

    /// There is nobody else, so its range must come back to it.
    async fn handles_it_soon(mut self) {
        self.hear(Said::Started, SOON).await;
        self.hear(Said::Done, SOON).await;
        settled::<NoteReaders>(&self.client).await;
        self.consumer.stop().await;
        self.client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_process_gave_up_while_the_database_was_away_is_handled_soon_after() {
    let cluster = Arc::new(Cluster::start(Options::default()));
    let client = Client::<Postgres>::connect(&cluster.url("postgres")).await.expect("the server takes connections");
    let mut hanging = Hanging::start(client).await;
    blocking(&cluster, |cluster| cluster.stop(Mode::Fast)).await;
    hanging.gives_up().await;
    blocking(&cluster, Cluster::start_again).await;
    hanging.handles_it_soon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_process_gave_up_while_the_network_was_away_is_handled_soon_after() {
    let database = fresh_database().await;
    let proxy = Proxy::start(database.url()).await;
    let client = Client::<Postgres>::new(proxy.pool(database.url()).await).expect("the pool is usable");
    let mut hanging = Hanging::start(client).await;
    proxy.go_away();
    hanging.gives_up().await;
    proxy.come_back();
    hanging.handles_it_soon().await;
}
