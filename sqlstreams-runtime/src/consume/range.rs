//! A claimed range while its messages are being handled.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use bytes::Bytes;

use super::signal::Signal;
use crate::backend::LeaseRow;
use crate::delivery::Progress;
use crate::identity::MessageId;
use crate::message::StoredMessage;
use crate::outcome::Verdict;

pub(crate) struct Range {
    pub(crate) lease: LeaseRow,
    pub(crate) messages: Vec<StoredMessage>,
    /// (version, low, high]: what this build can't read.
    pub(crate) parked: Vec<(i32, i64, i64)>,
    /// In an ordered group: its messages go to the lanes of their keys, since it keeps losing its owners.
    pub(crate) hold: bool,
    /// The next message to start, in `messages`.
    next: AtomicUsize,
    unfinished: AtomicUsize,
    /// A bit a message that is handled for good. Messages in trouble are not: after a crash they run again.
    done: Vec<AtomicU64>,
    troubled: Mutex<Vec<(usize, Verdict)>>,
    started: OnceLock<Instant>,
    pub(crate) progress: Arc<Progress>,
    reported: AtomicUsize,
    /// The lease was lost, or a shutdown ran out of time: handlers are dropped and record nothing.
    pub(crate) dropped: Signal,
    returned: AtomicBool,
}

impl Range {
    /// `messages`: what is to be handled, in id order.
    pub(crate) fn new(lease: LeaseRow, messages: Vec<StoredMessage>, parked: Vec<(i32, i64, i64)>) -> Self {
        let words = messages.len().div_ceil(64);
        Self {
            unfinished: AtomicUsize::new(messages.len()),
            done: (0..words).map(|_| AtomicU64::new(0)).collect(),
            lease,
            messages,
            parked,
            hold: false,
            next: AtomicUsize::new(0),
            troubled: Mutex::default(),
            started: OnceLock::new(),
            progress: Arc::default(),
            reported: AtomicUsize::new(0),
            dropped: Signal::default(),
            returned: AtomicBool::new(false),
        }
    }

    /// As it is, with its messages bound for the lanes of their keys.
    pub(crate) fn held(self) -> Self {
        Self { hold: true, ..self }
    }

    /// Takes the next message to start.
    pub(crate) fn start_next(&self) -> Option<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index == 0 {
            let _ = self.started.set(Instant::now());
        }
        (index < self.messages.len()).then_some(index)
    }

    /// A handler starts, of whichever message.
    pub(crate) fn begin(&self) {
        let _ = self.started.set(Instant::now());
    }

    /// Messages that no handler has started.
    pub(crate) fn waiting(&self) -> usize {
        self.messages.len().saturating_sub(self.next.load(Ordering::Relaxed))
    }

    /// Records what became of a message; true for the last one of the range.
    pub(crate) fn finish(&self, index: usize, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Done => self.set_done(index),
            trouble => self.troubled.lock().unwrap_or_else(PoisonError::into_inner).push((index, trouble)),
        }
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The message needs no handler any more.
    pub(crate) fn set_done(&self, index: usize) {
        self.done[index / 64].fetch_or(1 << (index % 64), Ordering::Release);
    }

    /// How long the handlers took, from the first start to now.
    pub(crate) fn took(&self) -> std::time::Duration {
        self.started.get().map(Instant::elapsed).unwrap_or_default()
    }

    /// The messages in trouble that nobody took yet.
    pub(crate) fn take_troubled(&self) -> Vec<(usize, Verdict)> {
        std::mem::take(&mut self.troubled.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The keys of its messages in trouble.
    pub(crate) fn troubled_keys(&self) -> Vec<Bytes> {
        let troubled = self.troubled.lock().unwrap_or_else(PoisonError::into_inner);
        troubled.iter().filter_map(|(index, _)| self.messages[*index].message_key.clone()).collect()
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.parked.is_empty() && self.troubled.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// True for the first caller: a range goes back once.
    pub(crate) fn give_back(&self) -> bool {
        !self.returned.swap(true, Ordering::AcqRel)
    }

    /// Whether its messages up to some id were handed out before the group was rewound.
    pub(crate) fn is_replay(&self) -> bool {
        self.lease.replay_until.is_some_and(|until| until > self.lease.low)
    }

    fn is_done(&self, index: usize) -> bool {
        self.done[index / 64].load(Ordering::Acquire) >> (index % 64) & 1 == 1
    }

    /// The messages that are handled for good.
    pub(crate) fn handled(&self) -> Vec<MessageId> {
        let messages = self.messages.iter().enumerate();
        messages.filter(|(index, _)| self.is_done(*index)).map(|(_, message)| message.id).collect()
    }

    /// How many messages are handled for good.
    pub(crate) fn done_count(&self) -> usize {
        self.done.iter().map(|word| word.load(Ordering::Acquire).count_ones() as usize).sum()
    }

    /// Intervals (low, high] in which nothing is left to do: handled messages and the ids between them, for
    /// those belong to no message of the group. `None` when that is the same as at the last call.
    pub(crate) fn progress(&self) -> Option<Vec<(i64, i64)>> {
        let done = self.done_count();
        if self.reported.swap(done, Ordering::AcqRel) == done {
            return None;
        }
        Some(self.done_intervals())
    }

    pub(crate) fn done_intervals(&self) -> Vec<(i64, i64)> {
        let mut intervals: Vec<(i64, i64)> = self.lease.done.clone();
        let mut low = self.lease.low;
        for (index, message) in self.messages.iter().enumerate() {
            if self.is_done(index) {
                push_interval(&mut intervals, low.max(message.id.0 - 1), message.id.0);
            }
            low = message.id.0;
        }
        intervals.sort_unstable();
        intervals
    }
}

fn push_interval(intervals: &mut Vec<(i64, i64)>, low: i64, high: i64) {
    match intervals.last_mut() {
        Some(last) if last.1 == low => last.1 = high,
        _ => intervals.push((low, high)),
    }
}

/// Whether `id` lies in one of the intervals (low, high].
pub(crate) fn contains(intervals: &[(i64, i64)], id: i64) -> bool {
    intervals.iter().any(|&(low, high)| low < id && id <= high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::LeaseToken;
    use crate::time::Timestamp;

    fn message(id: i64) -> StoredMessage {
        StoredMessage {
            scheduled_at: None,
            id: MessageId(id),
            created_at: Timestamp(0),
            schema_version: 1,
            codec: 0,
            routing_key: None,
            message_key: None,
            headers: None,
            payload: None,
        }
    }

    fn range(ids: &[i64], done: Vec<(i64, i64)>) -> Range {
        let lease = LeaseRow {
            token: LeaseToken::mint(),
            low: 0,
            high: 10,
            only_version: None,
            reclaims: 0,
            done,
            replay_until: None,
        };
        Range::new(lease, ids.iter().copied().map(message).collect(), Vec::new())
    }

    #[test]
    fn progress_covers_handled_ids_and_nothing_else() {
        let range = range(&[2, 3, 4, 8], Vec::new());
        range.finish(0, Verdict::Done);
        range.finish(1, Verdict::Done);
        range.finish(2, Verdict::retry("no"));
        assert_eq!(range.progress(), Some(vec![(1, 3)]));
        assert_eq!(range.progress(), None);
        assert!(range.finish(3, Verdict::Done));
        assert_eq!(range.progress(), Some(vec![(1, 3), (7, 8)]));
        assert_eq!(range.handled(), [MessageId(2), MessageId(3), MessageId(8)]);
    }

    #[test]
    fn an_earlier_owners_progress_is_kept() {
        let range = range(&[5], vec![(0, 4)]);
        range.finish(0, Verdict::Done);
        assert_eq!(range.done_intervals(), vec![(0, 5)]);
    }
}
