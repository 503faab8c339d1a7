//! Wake-ups. All are hints: a lost one costs a poll's time and never a message.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::identity::StreamId;
use crate::store::Store;

/// Other processes are told at once, and then at most this often.
const TELL_EVERY: Duration = Duration::from_millis(5);

/// The wake-ups of one client.
pub(crate) struct Hub {
    sleepers: Mutex<HashMap<StreamId, Vec<Weak<Notify>>>>,
    alarms: Mutex<HashMap<StreamId, Vec<Weak<Alarm>>>>,
    outbox: Arc<Outbox>,
    /// Ends the telling task with the client.
    _telling: DropGuard,
}

/// The sleep of whoever moves a stream's delayed messages into its log.
#[derive(Default)]
pub(crate) struct Alarm {
    wakes_at: Mutex<Option<Instant>>,
    rings: Notify,
}

impl Alarm {
    /// Returns at `wakes_at`, or sooner when it is rung.
    pub(crate) async fn sleep_until(&self, wakes_at: Instant) {
        self.set(Some(wakes_at));
        tokio::select! {
            () = self.rings.notified() => {}
            () = tokio::time::sleep_until(wakes_at.into()) => {}
        }
        self.set(None);
    }

    /// Wakes the sleeper; one that does not sleep does not fall asleep next.
    pub(crate) fn ring(&self) {
        self.rings.notify_one();
    }

    /// Rings unless the sleeper wakes by then anyway.
    fn ring_by(&self, time: Instant) {
        let wakes_at = *self.wakes_at.lock().unwrap_or_else(PoisonError::into_inner);
        if wakes_at.is_none_or(|wakes_at| wakes_at > time) {
            self.ring();
        }
    }

    fn set(&self, wakes_at: Option<Instant>) {
        *self.wakes_at.lock().unwrap_or_else(PoisonError::into_inner) = wakes_at;
    }
}

struct Outbox {
    streams: Mutex<HashSet<StreamId>>,
    filled: Notify,
}

impl Hub {
    /// Starts the task that tells other processes; needs a tokio runtime.
    pub(crate) fn new(store: Store) -> Arc<Self> {
        let outbox = Arc::new(Outbox { streams: Mutex::default(), filled: Notify::new() });
        let stop = CancellationToken::new();
        tokio::spawn(tell(store, Arc::clone(&outbox), stop.clone()));
        Arc::new(Self { sleepers: Mutex::default(), alarms: Mutex::default(), outbox, _telling: stop.drop_guard() })
    }

    /// `sleeper` is told of news on `stream` as long as it lives.
    pub(crate) fn subscribe(&self, stream: StreamId, sleeper: &Arc<Notify>) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let of_stream = sleepers.entry(stream).or_default();
        of_stream.retain(|sleeper| sleeper.strong_count() > 0);
        of_stream.push(Arc::downgrade(sleeper));
    }

    /// Messages were produced to `stream` by this process.
    pub(crate) fn produced(&self, stream: StreamId) {
        self.wake(&[stream]);
        self.outbox.streams.lock().unwrap_or_else(PoisonError::into_inner).insert(stream);
        self.outbox.filled.notify_one();
    }

    /// `alarm` is rung when something is delayed on `stream` that is due before it wakes, as long as it lives.
    pub(crate) fn subscribe_delays(&self, stream: StreamId, alarm: &Arc<Alarm>) {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        let of_stream = alarms.entry(stream).or_default();
        of_stream.retain(|alarm| alarm.strong_count() > 0);
        of_stream.push(Arc::downgrade(alarm));
    }

    /// A message of `stream` that is due after `wait` was delayed by this process.
    pub(crate) fn delayed(&self, stream: StreamId, wait: Duration) {
        let Some(due) = Instant::now().checked_add(wait) else { return };
        let alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        for alarm in alarms.get(&stream).into_iter().flatten().filter_map(Weak::upgrade) {
            alarm.ring_by(due);
        }
    }

    /// There may be news on `streams`; on any when the list is empty.
    pub(crate) fn wake(&self, streams: &[StreamId]) {
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let all = sleepers.iter().filter(|(stream, _)| streams.is_empty() || streams.contains(stream));
        for sleeper in all.flat_map(|(_, sleepers)| sleepers).filter_map(Weak::upgrade) {
            sleeper.notify_one();
        }
    }
}

async fn tell(store: Store, outbox: Arc<Outbox>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = outbox.filled.notified() => {}
            () = stop.cancelled() => return,
        }
        let streams: Vec<_> = outbox.streams.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
        if let Err(err) = store.wake_send(&streams).await {
            tracing::debug!(error = %err, "telling other processes of new messages");
        }
        tokio::time::sleep(TELL_EVERY).await;
    }
}
