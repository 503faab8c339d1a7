//! One group in one process: what its tasks share.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sqlstreams_schema::{DeliveryLog, GroupConfig, KeyPolicy, RetryPolicy};
use tokio::sync::{Notify, Semaphore, oneshot};

use super::binding::Bindings;
use super::handler::Dispatch;
use super::keys::Keys;
use super::observe::Observing;
use super::pace::Pace;
use super::range::Range;
use super::signal::Signal;
use super::stall::Stall;
use crate::backend::{BindingRow, ExceptionNext};
use crate::error::{Error, Kind};
use crate::identity::{GroupId, LeaseToken, PresenceId, StreamId};
use crate::outcome::Verdict;
use crate::store::Store;

/// A message of a range.
pub(crate) type Slot = (Arc<Range>, usize);

/// An open range, and whether it is finished.
type Opened = (Arc<Range>, bool);

/// What a keyed group has beside the rest.
pub(crate) struct Keyed {
    pub(crate) ordered: bool,
    keys: Mutex<Keys<Slot>>,
    /// Open ranges by their low end, with whether they are finished.
    order: Mutex<BTreeMap<(i64, LeaseToken), Opened>>,
    /// Held while ranges are settled.
    pub(crate) settling: tokio::sync::Mutex<()>,
}

impl Keyed {
    fn new(ordered: bool) -> Self {
        let keys = Mutex::new(Keys::new(ordered));
        Self { ordered, keys, order: Mutex::default(), settling: tokio::sync::Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Keys<Slot>> {
        lock(&self.keys)
    }

    /// The lowest finished range that can be settled, and the open ones below it. Keys in trouble go in order: a range
    /// waits for those below it in which one of them is in trouble as well.
    pub(crate) fn next_to_settle(&self) -> Option<(Arc<Range>, Vec<Arc<Range>>)> {
        let order = lock(&self.order);
        let mut below = Vec::new();
        let mut troubled: HashSet<Bytes> = HashSet::new();
        for (range, finished) in order.values() {
            let keys = range.troubled_keys();
            if *finished && (!self.ordered || keys.iter().all(|key| !troubled.contains(key))) {
                return Some((Arc::clone(range), below));
            }
            troubled.extend(keys);
            below.push(Arc::clone(range));
        }
        None
    }

    fn opened(&self, range: &Arc<Range>) {
        lock(&self.order).insert((range.lease.low, range.lease.token), (Arc::clone(range), false));
    }

    fn finished(&self, range: &Range) {
        if let Some((_, finished)) = lock(&self.order).get_mut(&(range.lease.low, range.lease.token)) {
            *finished = true;
        }
    }

    /// The low end of the oldest open range that is not finished.
    fn oldest(&self) -> Option<i64> {
        lock(&self.order).iter().find(|(_, (_, finished))| !finished).map(|((low, _), _)| *low)
    }

    /// The range is settled, or lost.
    pub(crate) fn forget(&self, range: &Range, troubled: &[usize]) {
        lock(&self.order).remove(&(range.lease.low, range.lease.token));
        let keys = troubled.iter().filter_map(|index| range.messages[*index].message_key.clone());
        self.lock().settled(keys);
    }
}

/// Open ranges of a keyed group above which the oldest one is made to end: its last messages may wait for their keys.
const MANY_RANGES: usize = 8;
/// Open ranges of a keyed group above which it claims no more.
const MOST_RANGES: usize = 32;

pub(crate) struct Session {
    pub(crate) store: Store,
    pub(crate) stream: StreamId,
    pub(crate) stream_name: Arc<str>,
    pub(crate) group: GroupId,
    pub(crate) group_name: Arc<str>,
    pub(crate) presence: PresenceId,
    pub(crate) handler: Arc<dyn Dispatch>,
    pub(crate) bindings: Bindings,
    pub(crate) versions: Vec<i32>,
    pub(crate) retry: RetryPolicy,
    pub(crate) timeout: Duration,
    pub(crate) delivery_log: DeliveryLog,
    pub(crate) concurrency: usize,
    /// A permit a running handler.
    pub(crate) permits: Arc<Semaphore>,
    /// What messages in trouble share while fresh ones wait: half of the places.
    pub(crate) half: Semaphore,
    /// Ranges with messages that no handler has started.
    queue: Mutex<VecDeque<Arc<Range>>>,
    /// Set in groups whose messages exclude each other by key.
    keyed: Option<Keyed>,
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
    pub(crate) observing: Arc<Observing>,
    /// No new claims and no new handlers.
    pub(crate) closing: Signal,
    /// Messages in trouble that are being run are dropped and go back. Replaced after each use.
    exceptions_dropped: Mutex<Arc<Signal>>,
    /// This process takes nothing from here on, unless its presence is renewed: others would take it at once, and
    /// may have changed the bindings.
    present_until: Mutex<Instant>,
    /// The group's epoch as of the last claim; negative before the first.
    epoch: AtomicI64,
    pub(crate) counts: Counts,
}

/// Ranges that wait for runners, beside those being handled.
const RANGES_AHEAD: usize = 3;

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
            ExceptionNext::Return | ExceptionNext::Wait { .. } => return,
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
    pub(crate) observing: Arc<Observing>,
    pub(crate) handler: Arc<dyn Dispatch>,
    pub(crate) config: GroupConfig,
    /// The stored bindings.
    pub(crate) bindings: BindingRow,
    /// When the presence expires, judged by this process.
    pub(crate) present_until: Instant,
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
            bindings: Bindings::new(&patterns(&params.config), params.bindings),
            versions: vec![params.version.cast_signed()],
            retry: params.config.retry,
            timeout: params.config.timeout,
            delivery_log: params.config.delivery_log,
            concurrency: params.concurrency,
            permits: Arc::new(Semaphore::new(params.concurrency)),
            half: Semaphore::new((params.concurrency / 2).max(1)),
            queue: Mutex::default(),
            keyed: match params.config.keys {
                KeyPolicy::Parallel => None,
                KeyPolicy::Exclusive => Some(Keyed::new(false)),
                KeyPolicy::Ordered => Some(Keyed::new(true)),
            },
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
            observing: params.observing,
            closing: Signal::default(),
            exceptions_dropped: Mutex::default(),
            present_until: Mutex::new(params.present_until),
            epoch: AtomicI64::new(-1),
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

    /// The chains of a keyed group.
    pub(crate) fn keys(&self) -> Option<&Keyed> {
        self.keyed.as_ref()
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.keyed.as_ref().is_some_and(|keyed| keyed.ordered)
    }

    /// Whether this build decodes the version.
    pub(crate) fn reads(&self, version: u32) -> bool {
        self.versions.contains(&version.cast_signed())
    }

    /// Opens a range of a keyed group whose messages are lined up next; settles it when there are none.
    pub(crate) fn open(self: &Arc<Self>, range: Range) -> Option<Arc<Range>> {
        let range = Arc::new(range);
        lock(&self.open).insert(range.lease.token, Arc::clone(&range));
        if let Some(keyed) = &self.keyed {
            keyed.opened(&range);
        }
        if range.messages.is_empty() {
            self.finished(&range);
            return None;
        }
        Some(range)
    }

    /// What a finished message of a keyed group lets go on.
    pub(crate) fn key_finished(self: &Arc<Self>, range: &Range, index: usize, clean: bool) {
        let Some(keyed) = &self.keyed else { return };
        let message = &range.messages[index];
        let Some(key) = &message.message_key else { return };
        let held = keyed.lock().finished(key, message.id.0, clean);
        super::gate::hold(self, held);
        self.queued.notify_waiters();
    }

    /// Whether another claim is worth making, beside `reading` ranges that are on their way.
    pub(crate) fn has_room(self: &Arc<Self>, reading: usize, width: usize) -> bool {
        let Some(keyed) = &self.keyed else {
            return self.ranges_waiting() + reading < RANGES_AHEAD && self.waiting() < width.max(self.concurrency);
        };
        let ready = keyed.lock().ready();
        let open = lock(&self.open).len();
        if open >= MANY_RANGES
            && ready < self.concurrency
            && let Some(low) = keyed.oldest()
        {
            let held = keyed.lock().relieve(low);
            super::gate::hold(self, held);
        }
        reading < RANGES_AHEAD && open < MOST_RANGES && ready < width.max(self.concurrency)
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
    pub(crate) fn next(&self) -> Option<Slot> {
        if let Some(keyed) = &self.keyed {
            return self.next_keyed(keyed);
        }
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

    fn next_keyed(&self, keyed: &Keyed) -> Option<Slot> {
        let (next, ready) = {
            let mut keys = keyed.lock();
            (keys.next(), keys.ready())
        };
        if ready < self.concurrency {
            self.news.notify_one();
        }
        let (range, index) = next?;
        range.begin();
        Some((range, index))
    }

    /// Messages that wait for a handler, over all ranges.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.queue).iter().map(|range| range.waiting()).sum()
    }

    /// Whether fresh messages wait for a place.
    pub(crate) fn has_fresh(&self) -> bool {
        self.keyed.as_ref().map_or_else(|| self.ranges_waiting() > 0, |keyed| keyed.lock().ready() > 0)
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
        // So does a replay, whose dead letters go when their messages are handled.
        let logs = (self.delivery_log == DeliveryLog::All || range.is_replay()) && !range.messages.is_empty();
        if let Some(keyed) = &self.keyed {
            keyed.finished(range);
            let session = Arc::clone(self);
            self.settlements.spawn(async move { super::settle::settle_in_order(&session).await });
        } else if range.is_clean() && !logs {
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

    /// The lease is someone else's now: its handlers are dropped, and what they did is not recorded. In an ordered
    /// group the ranges above go as well, for their messages ran after those that will run again.
    pub(crate) fn lose(&self, range: &Range) {
        self.lose_one(range);
        if self.is_ordered() {
            for higher in self.open_ranges().iter().filter(|open| open.lease.low > range.lease.low) {
                self.lose_one(higher);
            }
        }
    }

    fn lose_one(&self, range: &Range) {
        range.dropped.raise();
        self.close_range(range.lease.token);
        if let Some(keyed) = &self.keyed {
            keyed.lock().lose(|(of, _)| std::ptr::eq(&raw const **of, range));
            let troubled: Vec<_> = range.take_troubled().iter().map(|(index, _)| *index).collect();
            keyed.forget(range, &troubled);
        }
    }

    /// Whether the group was moved since the claim that `is_at` took note of.
    pub(crate) fn was_moved(&self, epoch: i64) -> bool {
        let before = self.epoch.load(Ordering::Acquire);
        before >= 0 && before != epoch
    }

    pub(crate) fn is_at(&self, epoch: i64) {
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Whether this process may take anything.
    pub(crate) fn is_present(&self) -> bool {
        Instant::now() < *lock(&self.present_until)
    }

    pub(crate) fn present_until(&self, until: Instant) {
        *lock(&self.present_until) = until;
    }

    /// The bindings to read a range with that was taken just now; none when this process's presence expired: they
    /// may not be the range's.
    pub(crate) async fn bindings_of_claim(&self) -> Result<Arc<Vec<String>>, Error> {
        let bindings = self.bindings.of_claim().await;
        if self.is_present() {
            return Ok(bindings);
        }
        let text = "this process's presence expired while it took a range, which is left to others";
        Err(Error::new(Kind::Unavailable, "SQLS-0321", text))
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
            Verdict::Held => ExceptionNext::Return,
            Verdict::Retry { error, after } => {
                let failures = failures.saturating_add(1);
                if failures > self.retry.retries {
                    ExceptionNext::Dead { error }
                } else {
                    let backoff = || self.retry.delay_after(failures, rand::random());
                    let after = after.map_or_else(backoff, |after| after.min(self.retry.max_delay));
                    ExceptionNext::Retry { after, error }
                }
            }
        }
    }
}

/// The bindings that a group declares.
pub(crate) fn patterns(config: &GroupConfig) -> Vec<String> {
    config.bindings.iter().map(|&pattern| pattern.to_owned()).collect()
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
