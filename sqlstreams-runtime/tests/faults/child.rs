//! The processes of an application: producers, and consumers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams_runtime::schema::{GroupConfig, Route};
use sqlstreams_runtime::{Client, ClientOptions, Consumer, Database, Group, Outcome, Recovery, SegmentError, Stream};
use sqlx::{Postgres, Sqlite};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::support::child::{Parent, say};

/// The payload.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    pub n: u64,
}

impl Stream for Note {
    const NAME: &'static str = "notes";
    const VERSION: u32 = 1;
    const ROUTE: Route = Route::NONE;
    const KEY: Option<&'static str> = None;

    fn routing_key(&self) -> Result<Option<String>, SegmentError> {
        Ok(None)
    }

    fn message_key(&self) -> Option<String> {
        None
    }
}

/// Who handles it.
pub struct Readers;

impl Group for Readers {
    type Stream = Note;
    const NAME: &'static str = "readers";
    const CONFIG: GroupConfig = GroupConfig::DEFAULT;
}

/// The message whose handler takes its process down.
pub const POISON: u64 = u64::MAX >> 12;

/// Where the processes' tests are.
pub const MODULE: &str = module_path!();

/// Tasks of a producing process, and the pause of each after a message.
const TASKS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(20);
/// What a handler takes: half of the handlers are at work at any time, in each process.
const WORK: Duration = Duration::from_millis(30);

/// Between two tries to begin.
const AGAIN: Duration = Duration::from_millis(200);

/// What a child is told in its environment.
pub const URL: &str = "FAULTS_URL";
pub const DATABASE: &str = "FAULTS_DATABASE";
pub const NUMBER: &str = "FAULTS_NUMBER";
pub const LEASE: &str = "FAULTS_LEASE_MS";

/// The words for a database.
pub const DIRECT: &str = "Postgres";
pub const POOLED: &str = "Postgres, pooled";
pub const FILE: &str = "SQLite";

fn variable(name: &str) -> String {
    std::env::var(name).expect("the parent gives the variable")
}

fn number(name: &str) -> u64 {
    variable(name).parse().expect("the parent gives a number")
}

/// A client as the words say.
pub async fn client<Db: Database>(database: &str, url: &str) -> Client<Db> {
    let options = ClientOptions::new().pooled(database == POOLED);
    Client::connect_with(url, options).await.expect("the database is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the producing process of the faults"]
async fn producing() {
    let Some(parent) = Parent::connect() else { return };
    match variable(DATABASE).as_str() {
        FILE => produce::<Sqlite>(parent).await,
        _ => produce::<Postgres>(parent).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the consuming process of the faults"]
async fn consuming() {
    let Some(parent) = Parent::connect() else { return };
    match variable(DATABASE).as_str() {
        FILE => consume::<Sqlite>(parent).await,
        _ => consume::<Postgres>(parent).await,
    }
}

/// Holds every connection of a client's pool until it is dropped.
async fn hold<Db: Database>(client: &Client<Db>) -> Vec<sqlx::pool::PoolConnection<Db>> {
    let mut held = Vec::new();
    for _ in 0..client.pool().options().get_max_connections() {
        held.push(client.pool().acquire().await.expect("a connection becomes free"));
    }
    say("holds all");
    held
}

/// Produces until it is told to stop.
async fn produce<Db: Database>(mut parent: Parent) {
    let client = present::<Db>().await;
    let notes = client.producer::<Note>().await.expect("the stream can be registered");
    let next = Arc::new(AtomicU64::new(number(NUMBER) << 32));
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (notes, next, stop) = (notes.clone(), next.clone(), stop.clone());
        tasks.spawn(async move {
            let mut pace = interval(PAUSE);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !stop.load(Ordering::Acquire) {
                pace.tick().await;
                let n = next.fetch_add(1, Ordering::Relaxed);
                match notes.produce(&Note { n }).await {
                    Ok(_) => say(format_args!("acknowledged {n}.")),
                    Err(err) if err.outcome_known() => {
                        say(format_args!("refused {n}."));
                        say(format_args!("complaint {err}"));
                    }
                    Err(err) => say(format_args!("complaint {err}")),
                }
            }
        });
    }
    let mut held = Vec::new();
    loop {
        match parent.hear().await.as_str() {
            "hold" => held = hold(&client).await,
            "release" => held.clear(),
            "poison" => {
                notes.produce(&Note { n: POISON }).await.expect("the poison can be produced");
                say(format_args!("acknowledged {POISON}."));
            }
            _ => break,
        }
    }
    stop.store(true, Ordering::Release);
    tasks.join_all().await;
    client.close().await;
}

/// Consumes until it is told to stop.
async fn consume<Db: Database>(mut parent: Parent) {
    let client = present::<Db>().await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(keep_consuming(client.clone(), stop.clone()));
    let mut held = Vec::new();
    loop {
        match parent.hear().await.as_str() {
            "hold" => held = hold(&client).await,
            "release" => held.clear(),
            _ => break,
        }
    }
    stop.cancel();
    running.await.expect("the consumer does not panic");
    client.close().await;
}

/// A client, as soon as the database is there: a process may be started while it is not.
async fn present<Db: Database>() -> Client<Db> {
    let mut ticks = interval(AGAIN);
    loop {
        ticks.tick().await;
        let options = ClientOptions::new().pooled(variable(DATABASE) == POOLED);
        match Client::connect_with(&variable(URL), options).await {
            Err(err) if err.recovery() == Recovery::Transient => say(format_args!("complaint {err}")),
            client => return client.expect("the database is usable"),
        }
    }
}

/// Consumes until it is told to stop. Once it has begun, nothing may end it; before, an outage may.
async fn keep_consuming<Db: Database>(client: Client<Db>, stop: CancellationToken) {
    let mut ticks = interval(AGAIN);
    let begun = Arc::new(AtomicBool::new(false));
    loop {
        ticks.tick().await;
        match consumer(&client, begun.clone()).run_until(stop.clone().cancelled_owned()).await {
            Ok(_) => return,
            Err(err) if err.recovery() == Recovery::Transient && !begun.load(Ordering::Acquire) => {
                say(format_args!("complaint {err}"));
            }
            Err(err) => return say(format_args!("failed {err}")),
        }
    }
}

fn consumer<Db: Database>(client: &Client<Db>, begun: Arc<AtomicBool>) -> Consumer {
    let consumer = client.consumer().lease(Duration::from_millis(number(LEASE))).concurrency(8);
    consumer.group_fn::<Readers, _, _>(move |note: Note, _| {
        begun.store(true, Ordering::Release);
        async move {
            if note.n == POISON {
                std::process::abort();
            }
            let mut work = interval(WORK);
            work.tick().await;
            work.tick().await;
            say(format_args!("handled {}.", note.n));
            Ok(Outcome::Done)
        }
    })
}
