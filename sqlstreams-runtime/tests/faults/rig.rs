//! An application of several processes on a database of its own, under load.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlstreams_runtime::{Client, Database, DeadLetterFilter, MessageId};
use sqlx::{Postgres, Sqlite};
use tokio::time::{interval, timeout};

use crate::child::{self, DATABASE, DIRECT, FILE, LEASE, NUMBER, Note, POOLED, Readers, URL};
use crate::network::Network;
use crate::record::{Fault, Record, What, judge};
use crate::support::child::ChildProcess;
use crate::support::cluster::{Cluster, Options};
use crate::support::database::{SqliteFile, sqlite_file};
use crate::support::pgbouncer::Pooler;

/// How long something may take that must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a busy machine may add to any time.
const SLACK: Duration = Duration::from_secs(2);

const PRODUCERS: usize = 2;
const CONSUMERS: usize = 3;

/// The times of a run.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// A consumer's lease.
    pub lease: Duration,
    /// How long a cut lasts, or an exhausted pool.
    pub outage: Duration,
    /// The load before and after the fault.
    pub load: Duration,
}

impl Times {
    /// The long form, with the default lease and outages of half a minute, where `SQLSTREAMS_FAULTS` says so; else the
    /// short one.
    pub fn of_this_run() -> Self {
        match std::env::var("SQLSTREAMS_FAULTS").as_deref() {
            Ok("long") => Self::of(8, 30, 5),
            Ok("short") | Err(_) => Self::of(2, 4, 2),
            Ok(other) => panic!("SQLSTREAMS_FAULTS is short or long, not {other:?}"),
        }
    }

    fn of(lease: u64, outage: u64, load: u64) -> Self {
        let [lease, outage, load] = [lease, outage, load].map(Duration::from_secs);
        Self { lease, outage, load }
    }
}

/// Lets a time pass: faults last for one.
pub async fn pass(time: Duration) {
    let _ = timeout(time, pending::<()>()).await;
}

/// Waits until something is so.
pub async fn until(what: &str, is_so: impl AsyncFnMut() -> bool) {
    assert!(comes(is_so).await, "it never came: {what}");
}

/// Whether something becomes so in time.
async fn comes(mut is_so: impl AsyncFnMut() -> bool) -> bool {
    let mut ticks = interval(Duration::from_millis(100));
    let waiting = async {
        while !is_so().await {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, waiting).await.is_ok()
}

/// Runs something that blocks, such as a server's start, beside the rest.
pub async fn blocking<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(run).await.expect("the server obeys")
}

/// What the database stands on.
enum Place {
    Server { cluster: Arc<Cluster>, network: Network, _pooler: Option<Pooler> },
    File { _file: SqliteFile },
}

/// The application. Its processes end with it.
pub struct Rig {
    pub times: Times,
    pub record: Record,
    pub producers: Vec<ChildProcess>,
    pub consumers: Vec<ChildProcess>,
    database: &'static str,
    url: String,
    place: Place,
    started: u64,
}

impl Rig {
    /// One on Postgres, the server keeping everything through a crash.
    pub async fn on_postgres(database: &'static str) -> Self {
        let cluster = blocking(|| Arc::new(Cluster::start(Options::default()))).await;
        let network = Network::to(cluster.port()).await;
        let near = format!("postgres://postgres@127.0.0.1:{}/postgres", network.port());
        let pooler =
            (database == POOLED).then(|| Pooler::start(&near, "pool_mode = transaction\ndefault_pool_size = 20"));
        let url = pooler.as_ref().map_or(near.clone(), |pooler| pooler.url(&near));
        migrate::<Postgres>(DIRECT, &cluster.url("postgres")).await;
        Self::with(database, url, Place::Server { cluster, network, _pooler: pooler })
    }

    /// One on a file.
    pub async fn on_a_file() -> Self {
        let file = sqlite_file();
        migrate::<Sqlite>(FILE, &file.url()).await;
        Self::with(FILE, file.url(), Place::File { _file: file })
    }

    fn with(database: &'static str, url: String, place: Place) -> Self {
        let (times, record) = (Times::of_this_run(), Record::default());
        Self { times, record, producers: vec![], consumers: vec![], database, url, place, started: 0 }
    }

    /// The server.
    pub fn cluster(&self) -> Arc<Cluster> {
        match &self.place {
            Place::Server { cluster, .. } => cluster.clone(),
            Place::File { .. } => panic!("a file has no server"),
        }
    }

    /// The network before the server.
    pub fn network(&self) -> &Network {
        match &self.place {
            Place::Server { network, .. } => network,
            Place::File { .. } => panic!("a file has no network"),
        }
    }

    fn process(&mut self, role: &'static str) -> ChildProcess {
        self.started += 1;
        let (number, lease) = (self.started.to_string(), self.times.lease.as_millis().to_string());
        let variables = [(URL, &*self.url), (DATABASE, self.database), (NUMBER, &number), (LEASE, &lease)];
        let mut process = ChildProcess::start(child::MODULE, role, &variables);
        tokio::spawn(self.record.clone().listen(format!("{role} {number}"), process.take_lines()));
        process
    }

    /// Starts another consumer.
    pub fn add_consumer(&mut self) {
        let consumer = self.process("consuming");
        self.consumers.push(consumer);
    }

    /// Starts everybody, and waits until the load has lasted for its time.
    pub async fn run(&mut self) {
        for _ in 0..PRODUCERS {
            let producer = self.process("producing");
            self.producers.push(producer);
        }
        for _ in 0..CONSUMERS {
            self.add_consumer();
        }
        let record = self.record.clone();
        until("messages are handled", async || record.count(What::Handled) > 100).await;
        pass(self.times.load).await;
    }

    /// A fault that begins now, and what it may do besides: with the reports that go out four times a lease, what a
    /// process handled since the last one may be handled again, and what it handles until it knows that others have it.
    pub fn fault(&self) -> Fault {
        let now = Instant::now();
        let (back, ahead) = (self.times.lease / 4 + SLACK, self.times.lease + SLACK);
        Fault { from: now, until: now, back, ahead, again: 1, gone: BTreeSet::new(), dead: BTreeSet::new() }
    }

    /// The ends of what the consumers printed.
    fn printed(&self) -> String {
        let end = |text: String| text.chars().rev().take(600).collect::<String>().chars().rev().collect::<String>();
        self.consumers.iter().map(|consumer| format!("\n{}: {}", consumer.id(), end(consumer.printed()))).collect()
    }

    /// Goes on under load after a fault, lets everybody come to an end, and judges.
    pub async fn end(self, name: &str, fault: Fault) {
        let (record, load) = (self.record.clone(), self.times.load);
        let database = self.database;
        let is_fast = comes(async || judge(&record.events(), &fault).full_speed.is_some()).await;
        assert!(is_fast, "it never came: the speed before the fault; {}{}", record.last_words(), self.printed());
        pass(load).await;
        let Self { mut producers, mut consumers, place, url, .. } = self;
        for producer in &mut producers {
            stop(producer).await;
        }
        let mut excused = fault.gone.clone();
        excused.extend(&fault.dead);
        let is_complete = comes(async || record.open(&excused).is_empty()).await;
        assert!(is_complete, "not handled: {:?}; {}", record.open(&excused), record.last_words());
        match &place {
            Place::Server { .. } => settled(child::client::<Postgres>(database, &url).await, &fault).await,
            Place::File { .. } => settled(child::client::<Sqlite>(database, &url).await, &fault).await,
        }
        for consumer in &mut consumers {
            stop(consumer).await;
        }
        let line = judge(&record.events(), &fault);
        println!("\n{}", line.row(database, name));
        assert_eq!(record.failures(), [""; 0], "a consumer ended by itself");
        assert_eq!(line.lost, [0; 0], "acknowledged and lost");
        assert!(line.wrong.is_empty(), "{}: {:#?}", line.wrong.len(), &line.wrong[..line.wrong.len().min(20)]);
        drop(place);
    }
}

/// The group has nothing left to do, and the right dead letters.
async fn settled<Db: Database>(client: Client<Db>, fault: &Fault) {
    until("the group has settled everything", async || {
        let position = client.position::<Readers>().await;
        position.is_ok_and(|position| position.settled == position.head && position.ready + position.inflight == 0)
    })
    .await;
    let dead = client.dead_letters::<Readers>().await.expect("dead letters");
    let dead = dead.list(&DeadLetterFilter::all(), MessageId(0), 100).await.expect("dead letters can be listed");
    assert_eq!(dead.len(), fault.dead.len(), "dead letters: {dead:?}");
    client.close().await;
}

async fn migrate<Db: Database>(database: &str, url: &str) {
    let client = child::client::<Db>(database, url).await;
    client.migrate().await.expect("a fresh installation can be migrated");
    client.producer::<Note>().await.expect("the stream can be registered");
    client.position::<Readers>().await.expect("the group can be registered");
    client.close().await;
}

/// Tells a process to stop, and waits until it has.
async fn stop(process: &mut ChildProcess) {
    process.tell("stop");
    until("a process stops", async || process.has_ended()).await;
    let status = process.ended(PATIENCE).await;
    assert!(status.success(), "a process failed: {}", process.printed());
}
