//! What a crash of the database or a cut of the network leaves: nothing acknowledged is lost, and nobody needs
//! a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlstreams_runtime::{Client, Consumer, Error, Group, GroupSummary, MessageId, Outcome, Producer};
use sqlx::Postgres;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::fence::declared::{Note, NoteReaders};
use crate::harness::PATIENCE;
use crate::support::cluster::{Cluster, Options};

mod immediate_stop;
mod long_outage;
mod lost_answer;
mod prepared;
mod proxy;
mod restart;

/// A server that loses as much as it may: nothing but durable commits reaches the disk.
fn forgetful() -> Options {
    Options::default()
        .with("wal_writer_delay", "10s")
        .with("wal_writer_flush_after", "1GB")
        .with("wal_buffers", "32MB")
        .with("autovacuum", "off")
        .with("bgwriter_lru_maxpages", "0")
        .with("checkpoint_timeout", "1h")
}

/// Runs something that blocks, such as a server's start, beside the test's tasks.
async fn blocking<T: Send + 'static>(cluster: &Arc<Cluster>, run: fn(&Cluster) -> T) -> T {
    let cluster = Arc::clone(cluster);
    tokio::task::spawn_blocking(move || run(&cluster)).await.expect("the server obeys")
}

/// What was handled, how often, in the order of the first time.
#[derive(Clone, Debug, Default)]
struct Handled {
    times: Arc<Mutex<BTreeMap<u64, u32>>>,
    more: Arc<Notify>,
}

impl Handled {
    fn add(&self, n: u64) {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner).entry(n).or_default() += 1;
        self.more.notify_waiters();
    }

    fn times(&self) -> BTreeMap<u64, u32> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self) -> usize {
        self.times().len()
    }

    /// Waits until all of them are handled.
    async fn all(&self, numbers: &[u64]) {
        self.until("all acknowledged messages are handled", |times| {
            let missing: Vec<_> = numbers.iter().filter(|n| !times.contains_key(n)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("missing {missing:?}")) }
        })
        .await;
    }

    /// Waits until so many different messages are handled.
    async fn at_least(&self, count: usize) {
        self.until("the consumer goes on", |times| {
            if times.len() >= count { Ok(()) } else { Err(format!("{} of {count}", times.len())) }
        })
        .await;
    }

    async fn until(&self, what: &str, check: impl Fn(&BTreeMap<u64, u32>) -> Result<(), String>) {
        let waiting = async {
            loop {
                let more = self.more.notified();
                if check(&self.times()).is_ok() {
                    return;
                }
                more.await;
            }
        };
        if timeout(PATIENCE, waiting).await.is_err() {
            panic!("it never happened: {what}; {:?}", check(&self.times()));
        }
    }
}

/// A consumer that runs beside the test.
struct Running {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<Vec<GroupSummary>, Error>>,
}

impl Running {
    fn start(consumer: Consumer) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        Self { stop, running: tokio::spawn(consumer.run_until(async { drop(stopped.await) })) }
    }

    async fn stop(self) {
        drop(self.stop);
        self.running.await.expect("the consumer does not panic").expect("the consumer ends well");
    }
}

/// An application: a client with a producer, and a consumer that records.
struct Application {
    client: Client<Postgres>,
    notes: Producer<Note, Postgres>,
    handled: Handled,
    consumer: Running,
}

impl Application {
    async fn start(client: Client<Postgres>) -> Self {
        Self::with(client, |consumer| consumer).await
    }

    async fn with(client: Client<Postgres>, set: impl FnOnce(Consumer) -> Consumer) -> Self {
        client.migrate().await.expect("a fresh installation can be migrated");
        let notes = client.producer::<Note>().await.expect("a stream can be registered");
        let handled = Handled::default();
        let recorder = handled.clone();
        let consumer = client.consumer().group_fn::<NoteReaders, _, _>(move |note, _| {
            recorder.add(note.n);
            async { Ok(Outcome::Done) }
        });
        let consumer = Running::start(set(consumer));
        Self { client, notes, handled, consumer }
    }

    /// Produces until the database acknowledges it; what it refused or did not answer is another message.
    async fn produce(&self, numbers: &Numbers) -> (u64, MessageId) {
        acknowledged(&self.notes, numbers).await
    }

    async fn end(self) {
        self.consumer.stop().await;
        self.client.close().await;
    }
}

async fn acknowledged(notes: &Producer<Note, Postgres>, numbers: &Numbers) -> (u64, MessageId) {
    let producing = async {
        loop {
            let n = numbers.next();
            if let Ok(id) = notes.produce(&Note { n }).await {
                return (n, id);
            }
        }
    };
    timeout(PATIENCE, producing).await.expect("the database is there again")
}

/// Numbers that name messages; ids can come twice after a crash.
#[derive(Clone, Debug, Default)]
struct Numbers(Arc<std::sync::atomic::AtomicU64>);

impl Numbers {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}

/// Where the group of the application stands, once everything that was handled is settled.
async fn settled<G: Group>(client: &Client<Postgres>) -> i64 {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let settling = async {
        loop {
            ticks.tick().await;
            if let Ok(position) = client.position::<G>().await
                && position.settled == position.head
            {
                return position.settled;
            }
        }
    };
    match timeout(PATIENCE, settling).await {
        Ok(settled) => settled,
        Err(_) => panic!("the group does not settle: {:?}", client.position::<G>().await),
    }
}
