//! One group in one process: what its tasks share.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlstreams_schema::{DeliveryLog, GroupConfig, RetryPolicy};
use tokio::sync::{Notify, Semaphore, oneshot};

use super::handler::Dispatch;
use super::pace::Pace;
use super::range::Range;
use super::signal::Signal;
use super::stall::Stall;
use crate::backend::ExceptionNext;
use crate::identity::{GroupId, LeaseToken, PresenceId, StreamId};
use crate::outcome::Verdict;
use crate::store::Store;

pub(crate) struct Session {
    pub(crate) store: Store,
    pub(crate) stream: StreamId,
    pub(crate) stream_name: Arc<str>,
    pub(crate) group: GroupId,
    pub(crate) group_name: Arc<str>,
    pub(crate) presence: PresenceId,
    pub(crate) handler: Arc<dyn Dispatch>,
    pub(crate) bindings: Vec<String>,
    pub(crate) versions: Vec<i32>,
    pub(crate) retry: RetryPolicy,
    pub(crate) timeout: Duration,
    pub(crate) delivery_log: DeliveryLog,
    pub(crate) concurrency: usize,
    /// A permit a running handler.
    pub(crate) permits: Arc<Semaphore>,
    /// Ranges with messages that no handler has started.
    queue: Mutex<VecDeque<Arc<Range>>>,
    /// Told by whoever queues a range or closes; runners wait for it.
    pub(crate) queued: Notify,
    /// Told by producers of this process, hints of others, and finished ranges; the claim loop waits for it.
    pub(crate) news: Arc<Notify>,
    /// Told when a message in trouble was recorded; the exception loop waits for it.
    pub(crate) trouble: Notify,
    /// Claimed ranges until they are settled. Runners add nothing; heartbeats read it.
    open: Mutex<HashMap<LeaseToken, Arc<Range>>>,
    /// Tokens in use: open, minted for a claim that is under way, or waiting to be settled.
    tokens: Mutex<HashSet<LeaseToken>>,
    /// Clean leases that the next claim ends.
    settled: Mutex<Vec<LeaseToken>>,
    /// Settlements under way in tasks of their own.
    pub(crate) settlements: tokio_util::task::TaskTracker,
    /// Ends with the newest settlement that parks versions: the next one extends what it stored.
    parking: Mutex<Option<oneshot::Receiver<()>>>,
    pub(crate) pace: Mutex<Pace>,
    pub(crate) stall: Mutex<Option<Stall>>,
    /// No new claims and no new handlers.
    pub(crate) closing: Signal,
    /// Messages in trouble that are being run are dropped and go back. Replaced after each use.
    exceptions_dropped: Mutex<Arc<Signal>>,
    /// This process's presence expired: what it would claim, others would take at once.
    absent: AtomicBool,
    pub(crate) counts: Counts,
}

/// What a session did, for its summary and for metrics.
pub(crate) struct Counts {
    pub(crate) done: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) delayed: AtomicU64,
    pub(crate) dead: AtomicU64,
    metrics: [metrics::Counter; 4],
    pub(crate) stalled: metrics::Gauge,
}

impl Counts {
    pub(crate) fn new(stream: &str, group: &str) -> Self {
        let outcome = |outcome: &'static str| metrics::counter!("sqlstreams_messages_handled", "stream" => stream.to_owned(), "group" => group.to_owned(), "outcome" => outcome);
        Self {
            done: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            metrics: ["done", "retry", "later", "dead"].map(outcome),
            stalled: metrics::gauge!("sqlstreams_stall_seconds", "stream" => stream.to_owned(), "group" => group.to_owned()),
        }
    }

    pub(crate) fn count(&self, next: &ExceptionNext) {
        let (count, metric) = match next {
            ExceptionNext::Done => (&self.done, 0),
            ExceptionNext::Retry { .. } => (&self.retried, 1),
            ExceptionNext::Later { .. } => (&self.delayed, 2),
            ExceptionNext::Dead { .. } => (&self.dead, 3),
            ExceptionNext::Return => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.metrics[metric].increment(1);
    }

    pub(crate) fn count_done(&self, messages: u64) {
        self.done.fetch_add(messages, Ordering::Relaxed);
        self.metrics[0].increment(messages);
    }
}

/// What a session is made of.
pub(crate) struct SessionParams {
    pub(crate) store: Store,
    pub(crate) stream: StreamId,
    pub(crate) stream_name: &'static str,
    pub(crate) version: u32,
    pub(crate) group: GroupId,
    pub(crate) group_name: &'static str,
    pub(crate) presence: PresenceId,
    pub(crate) handler: Arc<dyn Dispatch>,
    pub(crate) config: GroupConfig,
    pub(crate) concurrency: usize,
}

impl Session {
    pub(crate) fn new(params: SessionParams) -> Arc<Self> {
        Arc::new(Self {
            store: params.store,
            stream: params.stream,
            stream_name: params.stream_name.into(),
            group: params.group,
            group_name: params.group_name.into(),
            presence: params.presence,
            handler: params.handler,
            bindings: params.config.bindings.iter().map(|&pattern| pattern.to_owned()).collect(),
            versions: vec![params.version.cast_signed()],
            retry: params.config.retry,
            timeout: params.config.timeout,
            delivery_log: params.config.delivery_log,
            concurrency: params.concurrency,
            permits: Arc::new(Semaphore::new(params.concurrency)),
            queue: Mutex::default(),
            queued: Notify::new(),
            news: Arc::new(Notify::new()),
            trouble: Notify::new(),
            open: Mutex::default(),
            tokens: Mutex::default(),
            settled: Mutex::default(),
            settlements: tokio_util::task::TaskTracker::new(),
            parking: Mutex::default(),
            pace: Mutex::new(Pace::new(params.concurrency)),
            stall: Mutex::default(),
            closing: Signal::default(),
            exceptions_dropped: Mutex::default(),
            absent: AtomicBool::new(false),
            counts: Counts::new(params.stream_name, params.group_name),
        })
    }

    /// Mints a token that heartbeats name from now on.
    pub(crate) fn mint(&self) -> LeaseToken {
        let token = LeaseToken::mint();
        lock(&self.tokens).insert(token);
        token
    }

    pub(crate) fn forget(&self, token: LeaseToken) {
        lock(&self.tokens).remove(&token);
    }

    pub(crate) fn tokens(&self) -> Vec<LeaseToken> {
        lock(&self.tokens).iter().copied().collect()
    }

    pub(crate) fn open_ranges(&self) -> Vec<Arc<Range>> {
        lock(&self.open).values().cloned().collect()
    }

    /// Hands a range to the runners, or settles it when there is nothing in it to handle.
    pub(crate) fn admit(self: &Arc<Self>, range: Range) {
        let range = Arc::new(range);
        lock(&self.open).insert(range.lease.token, Arc::clone(&range));
        if range.messages.is_empty() {
            return self.finished(&range);
        }
        lock(&self.queue).push_back(range);
        self.queued.notify_waiters();
    }

    /// The next message to start, with its range.
    pub(crate) fn next(&self) -> Option<(Arc<Range>, usize)> {
        let mut queue = lock(&self.queue);
        while let Some(range) = queue.front() {
            if !range.dropped.is_raised()
                && let Some(index) = range.start_next()
            {
                let range = Arc::clone(range);
                if range.waiting() == 0 {
                    queue.pop_front();
                    // The claim loop fetches the next range while this one is being handled.
                    self.news.notify_one();
                }
                return Some((range, index));
            }
            queue.pop_front();
        }
        None
    }

    /// Messages that wait for a handler, over all ranges.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.queue).iter().map(|range| range.waiting()).sum()
    }

    pub(crate) fn ranges_waiting(&self) -> usize {
        lock(&self.queue).len()
    }

    /// Every message of the range has an outcome.
    pub(crate) fn finished(self: &Arc<Self>, range: &Arc<Range>) {
        if range.dropped.is_raised() {
            return;
        }
        lock(&self.pace).handled(range.messages.len(), range.took());
        // With a row a message to write, its own settlement ends the lease, and not the next claim.
        let logs = self.delivery_log == DeliveryLog::All && !range.messages.is_empty();
        if range.is_clean() && !logs {
            lock(&self.open).remove(&range.lease.token);
            lock(&self.settled).push(range.lease.token);
            self.counts.count_done(range.messages.len() as u64);
            self.news.notify_one();
        } else {
            let (session, range) = (Arc::clone(self), Arc::clone(range));
            let (ended, end) = oneshot::channel::<()>();
            let before = if range.parked.is_empty() { None } else { lock(&self.parking).replace(end) };
            self.settlements.spawn(async move {
                if let Some(before) = before {
                    let _ = before.await;
                }
                super::settle::settle(&session, &range).await;
                drop(ended);
            });
        }
    }

    pub(crate) fn take_settled(&self) -> Vec<LeaseToken> {
        std::mem::take(&mut lock(&self.settled))
    }

    pub(crate) fn has_settled(&self) -> bool {
        !lock(&self.settled).is_empty()
    }

    pub(crate) fn put_settled_back(&self, tokens: Vec<LeaseToken>) {
        lock(&self.settled).extend(tokens);
    }

    /// The range is settled or lost: heartbeats stop naming it.
    pub(crate) fn close_range(&self, token: LeaseToken) {
        lock(&self.open).remove(&token);
        self.forget(token);
    }

    /// The lease is someone else's now: its handlers are dropped, and what they did is not recorded.
    pub(crate) fn lose(&self, range: &Range) {
        range.dropped.raise();
        self.close_range(range.lease.token);
    }

    /// Whether this process may take anything.
    pub(crate) fn is_present(&self) -> bool {
        !self.absent.load(Ordering::Acquire)
    }

    pub(crate) fn set_present(&self, present: bool) {
        self.absent.store(!present, Ordering::Release);
    }

    /// Raised when running messages in trouble are to be dropped.
    pub(crate) fn exceptions_dropped(&self) -> Arc<Signal> {
        Arc::clone(&lock(&self.exceptions_dropped))
    }

    pub(crate) fn drop_exceptions(&self) {
        std::mem::take(&mut *lock(&self.exceptions_dropped)).raise();
    }

    /// What happens next after a run, given the failures that were recorded before it.
    pub(crate) fn next_after(&self, verdict: Verdict, failures: u32) -> ExceptionNext {
        match verdict {
            Verdict::Done => ExceptionNext::Done,
            Verdict::Dead { error } => ExceptionNext::Dead { error },
            Verdict::Later { after } => ExceptionNext::Later { after },
            Verdict::Retry { error } => {
                let failures = failures.saturating_add(1);
                if failures > self.retry.retries {
                    ExceptionNext::Dead { error }
                } else {
                    ExceptionNext::Retry { after: self.retry.delay_after(failures, rand::random()), error }
                }
            }
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
