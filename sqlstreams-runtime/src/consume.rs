//! Consuming: several groups in one process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sqlstreams_schema::{GroupConfig, Start};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backend::PresenceParams;
use crate::delivery::Delivery;
use crate::error::{Error, Kind};
use crate::group::{Group, Handler};
use crate::hub::Hub;
use crate::identity::{GroupId, PresenceId, StreamId};
use crate::message::Stream;
use crate::migrate::BUILD;
use crate::outcome::{BoxError, Outcome};
use crate::register;
use crate::store::Store;
use crate::worker;

mod binding;
mod claim;
pub(crate) mod decode;
mod dispatch;
mod exception;
mod gate;
mod handler;
mod keys;
mod lane;
mod observe;
mod pace;
mod presence;
mod range;
mod recover;
mod session;
mod settle;
mod signal;
mod stall;

use handler::{Closure, Dispatch, Typed};
pub(crate) use observe::Observations;
use presence::Heart;
use session::{Session, SessionParams, lock, patterns};
pub use stall::Stall;

/// The stalls that a client's consumers see now, kept by the client.
pub(crate) type Stalls = Arc<std::sync::Mutex<Vec<std::sync::Weak<Session>>>>;

/// The current stalls of `stalls`' sessions.
pub(crate) fn stalls(stalls: &Stalls) -> Vec<Stall> {
    let sessions = lock(stalls);
    sessions.iter().filter_map(std::sync::Weak::upgrade).filter_map(|session| lock(&session.stall).clone()).collect()
}

/// Tells those of `stalls`' sessions that run `group` that messages in trouble are due.
pub(crate) fn trouble(stalls: &Stalls, group: GroupId) {
    for session in lock(stalls).iter().filter_map(std::sync::Weak::upgrade).filter(|session| session.group == group) {
        session.trouble.notify_one();
    }
}

/// A consuming process: groups with their handlers. Built by `Client::consumer`.
#[must_use = "a consumer does nothing until `run_until` or `run`"]
pub struct Consumer {
    store: Store,
    hub: Arc<Hub>,
    stalls: Stalls,
    observations: Arc<Observations>,
    groups: Vec<Declared>,
    concurrency: usize,
    lease: Duration,
    shutdown_within: Duration,
    maintenance: bool,
}

type Registering = Pin<Box<dyn Future<Output = Result<StreamId, Error>> + Send>>;

struct Declared {
    register: Box<dyn Fn(Store) -> Registering + Send + Sync>,
    stream_name: &'static str,
    version: u32,
    name: &'static str,
    config: GroupConfig,
    start: Start,
    handler: Arc<dyn Dispatch>,
}

/// What one group did while its consumer ran, in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// The stream.
    pub stream: String,
    /// The group.
    pub group: String,
    /// Messages that were handled.
    pub done: u64,
    /// Runs that failed and will be repeated.
    pub retried: u64,
    /// Runs whose handler asked for a later one.
    pub delayed: u64,
    /// Messages that became dead letters.
    pub dead: u64,
}

impl Consumer {
    pub(crate) fn new(store: Store, hub: Arc<Hub>, stalls: Stalls, observations: Arc<Observations>) -> Self {
        Self {
            store,
            hub,
            stalls,
            observations,
            groups: Vec::new(),
            concurrency: 16,
            lease: Duration::from_secs(8),
            shutdown_within: Duration::from_secs(30),
            maintenance: true,
        }
    }

    /// Adds a group. A new one starts where its declaration says. Bindings that differ from the stored ones wait until no
    /// live process declares those; until then this process handles what the stored ones match, and warns.
    pub fn group<H: Handler>(self, handler: H) -> Self {
        self.group_from(handler, H::CONFIG.start)
    }

    /// Adds a group that starts at `start` when it is new; a stored one goes on where it is.
    pub fn group_from<H: Handler>(mut self, handler: H, start: Start) -> Self {
        self.groups.push(Declared::new::<H>(start, Arc::new(Typed(handler))));
        self
    }

    /// Adds the group `G` with a closure as its handler.
    pub fn group_fn<G, F, R>(mut self, handle: F) -> Self
    where
        G: Group,
        F: Fn(G::Stream, Delivery) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, BoxError>> + Send + 'static,
    {
        self.groups.push(Declared::new::<G>(G::CONFIG.start, Arc::new(Closure::<G, F>::new(handle))));
        self
    }

    /// How many handlers of each group may run at once: 16 unless set, at least 1.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers.max(1);
        self
    }

    /// How long this process counts as alive without a renewal: 8 s unless set, at least 1 s. After a crash,
    /// others take its messages when this is over. Handlers may run longer: live processes renew.
    pub fn lease(mut self, ttl: Duration) -> Self {
        self.lease = ttl.max(Duration::from_secs(1));
        self
    }

    /// How long running handlers may take to finish at shutdown: 30 s unless set. What is unfinished then is
    /// dropped and handed back; it spends no attempt.
    pub fn shutdown_within(mut self, longest: Duration) -> Self {
        self.shutdown_within = longest;
        self
    }

    /// Whether this process takes its share of the installation's maintenance, as it does unless told otherwise.
    /// Somebody must: without it delayed messages don't come, and idempotency keys are kept for ever.
    pub fn maintenance(mut self, take_part: bool) -> Self {
        self.maintenance = take_part;
        self
    }

    /// Consumes until the process ends or an error that no retry can mend.
    ///
    /// # Errors
    /// As [`Consumer::run_until`].
    pub async fn run(self) -> Result<Vec<GroupSummary>, Error> {
        self.run_until(std::future::pending()).await
    }

    /// Registers the groups, consumes until `shutdown` is ready, then stops within the bound: no new claims,
    /// running handlers finish, unfinished ranges are handed back.
    ///
    /// The database may restart meanwhile; the consumer goes on by itself.
    ///
    /// # Errors
    /// A declaration that contradicts what is stored, a missing installation or right. What was handled
    /// before is settled.
    ///
    /// # Cancellation
    /// A dropped future drops the running handlers and settles nothing more; others take the process's ranges
    /// when its lease is over. Use `shutdown` to stop cleanly.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Vec<GroupSummary>, Error> {
        if self.groups.is_empty() {
            return Err(Error::new(
                Kind::Declaration,
                "SQLS-0312",
                "the consumer has no group - add one with `.group(…)`",
            ));
        }
        self.store.migration_check().await?;
        let presence = PresenceId::mint();
        let params = self.presence(presence);
        let expires = Instant::now() + self.lease;
        // Present before it registers: what it declares is seen by those who would replace it meanwhile.
        self.store.presence_enter(&params).await?;
        let sessions = match self.sessions(presence, expires).await {
            Ok(sessions) => sessions,
            Err(err) => {
                if let Err(err) = self.store.presence_leave(presence).await {
                    tracing::warn!(error = %err, "ending this process's presence");
                }
                return Err(err);
            }
        };
        let stop = CancellationToken::new();
        let _stopped_when_dropped = stop.clone().drop_guard();
        let mut running = Running {
            store: self.store.clone(),
            sessions,
            presence,
            tasks: JoinSet::new(),
            runners: JoinSet::new(),
            background: JoinSet::new(),
            maintaining: self.maintenance.then(|| stop.child_token()),
            stop,
            shutdown_within: self.shutdown_within,
        };
        lock(&self.stalls).extend(running.sessions.iter().map(Arc::downgrade));
        running.start(&self.hub, params, expires);
        let failure = tokio::select! {
            () = shutdown => None,
            failure = running.failure() => Some(failure),
        };
        running.shut_down().await;
        match failure {
            Some(err) => Err(err),
            None => Ok(running.sessions.iter().map(|session| summary(session)).collect()),
        }
    }

    async fn sessions(&self, presence: PresenceId, expires: Instant) -> Result<Vec<Arc<Session>>, Error> {
        let mut sessions: Vec<Arc<Session>> = Vec::with_capacity(self.groups.len());
        for declared in &self.groups {
            let stream = (declared.register)(self.store.clone()).await?;
            let group =
                register::group(&self.store, stream, declared.name, &declared.config, declared.start, Some(presence));
            let group = group.await?;
            if sessions.iter().any(|session| session.group == group.id) {
                return Err(Error::new(
                    Kind::Declaration,
                    "SQLS-0313",
                    format!("group \"{}\" of stream \"{}\" is added twice", declared.name, declared.stream_name),
                ));
            }
            tracing::info!(stream = declared.stream_name, group = declared.name, registered = ?group.registered, "consuming");
            if let Some(hold) = &group.bindings.hold {
                tracing::warn!(stream = declared.stream_name, group = declared.name, %hold,
                    "the declared bindings wait; the stored ones are in force");
            }
            sessions.push(Session::new(SessionParams {
                store: self.store.clone(),
                stream,
                stream_name: declared.stream_name,
                version: declared.version,
                group: group.id,
                group_name: declared.name,
                presence,
                observing: self.observations.of(stream),
                handler: Arc::clone(&declared.handler),
                config: declared.config,
                bindings: group.bindings,
                present_until: expires,
                concurrency: self.concurrency,
            }));
        }
        Ok(sessions)
    }

    fn presence(&self, id: PresenceId) -> PresenceParams {
        let readable: Vec<_> = self
            .groups
            .iter()
            .map(|declared| {
                let versions = [declared.version.cast_signed()];
                presence::readable(declared.stream_name, declared.name, &versions, Some(&patterns(&declared.config)))
            })
            .collect();
        PresenceParams {
            id,
            build: BUILD,
            process: crate::store::process(),
            readable: serde_json::Value::from(readable).to_string(),
            ttl: self.lease,
        }
    }
}

impl Declared {
    fn new<G: Group>(start: Start, handler: Arc<dyn Dispatch>) -> Self {
        Self {
            register: Box::new(|store| {
                Box::pin(async move { register::stream::<G::Stream>(&store, register::PARTITION_SIZE).await })
            }),
            stream_name: G::Stream::NAME,
            version: G::Stream::VERSION,
            name: G::NAME,
            config: G::CONFIG,
            start,
            handler,
        }
    }
}

fn summary(session: &Session) -> GroupSummary {
    let counts = &session.counts;
    GroupSummary {
        stream: session.stream_name.to_string(),
        group: session.group_name.to_string(),
        done: counts.done.load(Ordering::Relaxed),
        retried: counts.retried.load(Ordering::Relaxed),
        delayed: counts.delayed.load(Ordering::Relaxed),
        dead: counts.dead.load(Ordering::Relaxed),
    }
}

/// A consumer's tasks.
struct Running {
    store: Store,
    sessions: Vec<Arc<Session>>,
    presence: PresenceId,
    /// Claim, exception and recovery loops: they end when their session closes, or with what can't be mended.
    tasks: JoinSet<Result<(), Error>>,
    /// They start handlers, until their session closes.
    runners: JoinSet<()>,
    /// Heartbeat and listening: they end with `stop`, after everything is settled.
    background: JoinSet<()>,
    stop: CancellationToken,
    /// Ends the workers, as soon as a shutdown begins.
    maintaining: Option<CancellationToken>,
    shutdown_within: Duration,
}

impl Running {
    fn start(&mut self, hub: &Arc<Hub>, params: PresenceParams, expires: Instant) {
        for session in &self.sessions {
            hub.subscribe(session.stream, &session.news);
            self.tasks.spawn(claim::Claimer::new(Arc::clone(session)).run());
            self.tasks.spawn(exception::run(Arc::clone(session)));
            if session.keys().is_some() {
                self.tasks.spawn(gate::run(Arc::clone(session)));
            }
            let recovering = recover::run(Arc::clone(session));
            self.tasks.spawn(async move {
                recovering.await;
                Ok(())
            });
            // Handlers that are ready at once run on these: as many as there are cores to run them.
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..session.concurrency.min(cores) {
                self.runners.spawn(dispatch::run(Arc::clone(session)));
            }
        }
        let heart = Heart {
            store: self.store.clone(),
            params,
            sessions: self.sessions.clone(),
            expires,
            beats: 0,
            unsure: false,
            given_up: Vec::new(),
        };
        self.background.spawn(heart.run(self.stop.clone()));
        if let Some(stop) = self.maintaining.clone() {
            self.background.spawn(worker::run(self.store.clone(), Arc::clone(hub), self.presence, stop));
        }
        self.background.spawn(listen(self.store.clone(), Arc::clone(hub), self.stop.clone()));
    }

    /// The first error that no retry can mend.
    async fn failure(&mut self) -> Error {
        let ended = |err| Error::new(Kind::Database, "SQLS-0999", "a task of the consumer ended").with_source(err);
        loop {
            tokio::select! {
                Some(task) = self.tasks.join_next() => match task {
                    Ok(Ok(())) => {}
                    Ok(Err(err)) => return err,
                    Err(err) => return ended(err),
                },
                Some(Err(err)) = self.runners.join_next() => return ended(err),
                else => return std::future::pending().await,
            }
        }
    }

    async fn shut_down(&mut self) {
        if let Some(maintaining) = &self.maintaining {
            maintaining.cancel();
        }
        for session in &self.sessions {
            session.closing.raise();
            session.queued.notify_waiters();
        }
        let finishing = async {
            while self.runners.join_next().await.is_some() {}
            while self.tasks.join_next().await.is_some() {}
            for session in &self.sessions {
                // All permits back: no handler runs.
                let permits = u32::try_from(session.concurrency).unwrap_or(u32::MAX);
                let _ = session.permits.acquire_many(permits).await;
                session.settlements.close();
                session.settlements.wait().await;
            }
        };
        if tokio::time::timeout(self.shutdown_within, finishing).await.is_err() {
            tracing::warn!(
                "handlers were still running when the shutdown's time was over; their messages are handed back"
            );
        }
        // A handler that was about to start must have started, or never will, before anything is handed back.
        self.runners.abort_all();
        let _ = tokio::time::timeout(CLOSING, async { while self.runners.join_next().await.is_some() {} }).await;
        let closing = async {
            for session in &self.sessions {
                session.drop_exceptions();
                settle::give_back(session).await;
                claim::flush(session).await;
                session.settlements.close();
                session.settlements.wait().await;
            }
        };
        let _ = tokio::time::timeout(CLOSING, closing).await;
        // Whatever could not be given back is free for others from here on.
        match tokio::time::timeout(CLOSING, self.store.presence_leave(self.presence)).await {
            Ok(Ok(())) => {}
            Ok(Err(err)) => tracing::warn!(error = %err, "ending this process's presence"),
            Err(_) => tracing::warn!("the database did not answer; this process's presence ends with its lease"),
        }
        self.stop.cancel();
        // Not waited for: a handler that blocks its thread can't be ended.
        self.tasks.abort_all();
        self.tasks.detach_all();
        self.runners.detach_all();
        self.background.shutdown().await;
    }
}

/// A consumer that is dropped drops its handlers: nobody would keep their messages from others.
impl Drop for Running {
    fn drop(&mut self) {
        for session in &self.sessions {
            session.closing.raise();
            session.drop_exceptions();
            for range in session.open_ranges() {
                range.dropped.raise();
            }
        }
    }
}

/// What each step of handing back may take beyond the shutdown's own bound. A database that does not answer must
/// not hold the process: expired leases do the same, later.
const CLOSING: Duration = Duration::from_secs(3);

async fn listen(store: Store, hub: Arc<Hub>, stop: CancellationToken) {
    loop {
        let heard = tokio::select! {
            heard = store.wake_wait() => heard,
            () = stop.cancelled() => return,
        };
        match heard {
            Ok(streams) => hub.wake(&streams),
            Err(err) => {
                tracing::debug!(error = %err, "listening for other processes; trying again");
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(rand::random_range(500..1500))) => {}
                    () = stop.cancelled() => return,
                }
            }
        }
    }
}
