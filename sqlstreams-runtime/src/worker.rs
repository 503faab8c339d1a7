//! Maintenance: each task is run by one process at a time, elected through the database.
//!
//! An election is for economy. Every worker is correct when two processes run it at once, as they can for a moment after
//! one was cut off.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::backend::{PresenceParams, WorkerLookParams, WorkerNames, WorkerRow, WorkerStateRow};
use crate::error::{Error, Kind, Recovery};
use crate::hub::{Alarm, Hub};
use crate::identity::{DelayedId, PresenceId, StreamId, WorkerToken};
use crate::migrate::BUILD;
use crate::store::Store;

mod advance;
mod promote;
mod sweep;

/// Moves a stream's delayed messages into its log when they are due.
const DELAYED_PROMOTER: &str = "delayed_promoter";
/// Removes a stream's expired idempotency keys.
const IDEMPOTENCY_SWEEPER: &str = "idempotency_sweeper";
/// Moves a group's stored position up to where everything is settled.
const CURSOR_ADVANCER: &str = "cursor_advancer";

const NAMES: WorkerNames =
    WorkerNames { of_streams: &[DELAYED_PROMOTER, IDEMPOTENCY_SWEEPER], of_groups: &[CURSOR_ADVANCER] };

/// Between two looks at all workers, in milliseconds: how soon a new, resumed or abandoned one is run again.
const LOOKS: std::ops::RangeInclusive<u64> = 4_000..=6_000;
/// Between two looks for what other processes delayed, one for all streams.
const HEADS: Duration = Duration::from_secs(1);
/// At most this many workers are taken by one statement.
const MOST_TAKEN: usize = 500;
const FIRST_AFTER_ERROR: Duration = Duration::from_secs(1);
const LONGEST_AFTER_ERROR: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(8);

/// One step of a worker, and how long to wait for the next.
trait Work: Send + 'static {
    fn step(&mut self) -> impl Future<Output = Result<Duration, Error>> + Send;

    /// Waits for the next step.
    fn rest(&mut self, wait: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(wait)
    }
}

/// The tasks of the installation, declared where they are not.
pub(crate) async fn list(store: &Store) -> Result<Vec<WorkerStateRow>, Error> {
    store.migration_check().await?;
    store.worker_declare(NAMES).await?;
    store.worker_list(None).await
}

/// Runs the installation's maintenance by itself. Built by `Client::manager`.
#[must_use = "a manager does nothing until `run_until` or `run`"]
pub struct Manager {
    store: Store,
    hub: Arc<Hub>,
}

impl Manager {
    pub(crate) fn new(store: Store, hub: Arc<Hub>) -> Self {
        Self { store, hub }
    }

    /// Runs until the process ends.
    ///
    /// # Errors
    /// As [`Manager::run_until`].
    pub async fn run(self) -> Result<(), Error> {
        self.run_until(std::future::pending()).await
    }

    /// Takes part in the elections, and runs what it wins until `shutdown` is ready. The database may restart
    /// meanwhile; the manager goes on by itself.
    ///
    /// # Errors
    /// A missing installation.
    ///
    /// # Cancellation
    /// A dropped future stops everything; others take over when its lease of some seconds is over. Use `shutdown` to
    /// hand over at once.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        self.store.migration_check().await?;
        let params = PresenceParams {
            id: PresenceId::mint(),
            build: BUILD,
            process: crate::store::process(),
            readable: "[]".to_owned(),
            ttl: TTL,
        };
        self.store.presence_enter(&params).await?;
        let stop = CancellationToken::new();
        let _stopped_when_dropped = stop.clone().drop_guard();
        tokio::select! {
            () = shutdown => {}
            () = keep_present(&self.store, &params) => {}
            () = run(self.store.clone(), self.hub, params.id, stop.clone()) => {}
        }
        stop.cancel();
        if let Err(err) = self.store.presence_leave(params.id).await {
            tracing::warn!(error = %err, "ending this process's presence; it ends by itself");
        }
        Ok(())
    }
}

/// Never returns.
async fn keep_present(store: &Store, params: &PresenceParams) {
    loop {
        tokio::time::sleep(params.ttl / 4).await;
        let renewed = match store.presence_renew(params.id, params.ttl).await {
            Ok(false) => store.presence_enter(params).await,
            renewed => renewed.map(drop),
        };
        if let Err(err) = renewed {
            tracing::warn!(error = %err, "renewing this process's presence; trying again");
        }
    }
}

/// Takes part in the elections for the process with the presence `owner`, until `stop`.
pub(crate) async fn run(store: Store, hub: Arc<Hub>, owner: PresenceId, stop: CancellationToken) {
    let mut crew = Crew { store, hub, owner, held: HashMap::new(), alarms: HashMap::new(), tasks: JoinSet::new() };
    let mut heads = HashMap::new();
    let mut next_look = Instant::now();
    while !stop.is_cancelled() {
        if Instant::now() >= next_look {
            match crew.look().await {
                Ok(()) => {}
                // A role that only consumes takes no part, and keeps nothing from others.
                Err(err) if err.kind() == Kind::Permission => {
                    tracing::info!(error = %err, "maintenance is left to processes whose role may run it");
                    return stop.cancelled().await;
                }
                Err(err) => tracing::warn!(error = %err, "looking for workers to run; trying again"),
            }
            next_look = Instant::now() + Duration::from_millis(rand::random_range(LOOKS));
        }
        crew.ring(&mut heads).await;
        let wait = next_look.saturating_duration_since(Instant::now());
        let wait = if crew.alarms.is_empty() { wait } else { wait.min(HEADS) };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            Some(_) = crew.tasks.join_next() => {}
            () = stop.cancelled() => {}
        }
    }
}

/// What one process runs.
struct Crew {
    store: Store,
    hub: Arc<Hub>,
    owner: PresenceId,
    /// Dropping the guard ends the worker.
    held: HashMap<WorkerToken, DropGuard>,
    /// Of the promoters that run here.
    alarms: HashMap<StreamId, std::sync::Weak<Alarm>>,
    tasks: JoinSet<()>,
}

impl Crew {
    async fn look(&mut self) -> Result<(), Error> {
        let params =
            WorkerLookParams { owner: self.owner, held: self.held.keys().copied().collect(), names: NAMES, now: None };
        let mut seen = self.store.worker_look(&params).await?;
        if seen.undeclared {
            self.store.worker_declare(NAMES).await?;
            seen = self.store.worker_look(&params).await?;
        }
        for token in seen.lost {
            self.held.remove(&token);
        }
        for free in seen.free.chunks(MOST_TAKEN) {
            let wanted: Vec<_> = free.iter().map(|worker| (worker.id, WorkerToken::mint())).collect();
            let taken = self.store.worker_take(self.owner, &wanted, None).await?;
            for (worker, (_, token)) in free.iter().zip(wanted).filter(|(_, (_, token))| taken.contains(token)) {
                self.start(worker, token);
            }
        }
        Ok(())
    }

    fn start(&mut self, worker: &WorkerRow, token: WorkerToken) {
        let (store, stream) = (self.store.clone(), worker.stream);
        let stop = CancellationToken::new();
        let until = stop.clone();
        tracing::debug!(worker = %worker.name, %stream, "running");
        match (worker.name.as_str(), worker.group) {
            (DELAYED_PROMOTER, None) => {
                let promoter = promote::Promoter::new(store, Arc::clone(&self.hub), stream);
                self.alarms.insert(stream, Arc::downgrade(promoter.alarm()));
                self.tasks.spawn(work(DELAYED_PROMOTER, promoter, until));
            }
            (IDEMPOTENCY_SWEEPER, None) => {
                self.tasks.spawn(work(IDEMPOTENCY_SWEEPER, sweep::Sweeper::new(store, stream), until));
            }
            (CURSOR_ADVANCER, Some(group)) => {
                self.tasks.spawn(work(CURSOR_ADVANCER, advance::Advancer::new(store, stream, group), until));
            }
            _ => return,
        }
        self.held.insert(token, stop.drop_guard());
    }

    /// Rings the promoters of the streams on which something was delayed, by whomever.
    async fn ring(&mut self, heads: &mut HashMap<StreamId, DelayedId>) {
        self.alarms.retain(|_, alarm| alarm.strong_count() > 0);
        if self.alarms.is_empty() {
            return;
        }
        let streams: Vec<_> = self.alarms.keys().copied().collect();
        match self.store.delayed_heads(&streams).await {
            Ok(seen) => {
                for (stream, head) in seen {
                    // A stream on which nothing was ever delayed is left asleep.
                    let known = heads.insert(stream, head).unwrap_or(DelayedId(0));
                    let alarm = self.alarms.get(&stream).filter(|_| known != head);
                    if let Some(alarm) = alarm.and_then(std::sync::Weak::upgrade) {
                        alarm.ring();
                    }
                }
            }
            Err(err) => tracing::debug!(error = %err, "looking for delayed messages; trying again"),
        }
    }
}

/// Works until `stop`; after an error, again, ever later.
async fn work<W: Work>(name: &'static str, mut worker: W, stop: CancellationToken) {
    let mut after_error = FIRST_AFTER_ERROR;
    let working = async {
        loop {
            match worker.step().await {
                Ok(wait) => {
                    after_error = FIRST_AFTER_ERROR;
                    worker.rest(wait).await;
                }
                Err(err) => {
                    let lasting = err.recovery() == Recovery::Permanent;
                    tracing::warn!(worker = name, error = %err, lasting, "a worker failed; trying again");
                    tokio::time::sleep(after_error).await;
                    after_error = (after_error * 2).min(LONGEST_AFTER_ERROR);
                }
            }
        }
    };
    tokio::select! {
        () = working => {}
        () = stop.cancelled() => {}
    }
}

/// `wait` give or take a tenth, so that processes that began together do not stay together.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::random_range(0.9..=1.1))
}
