//! What keeps a group from messages that are already numbered.

use std::time::{Duration, Instant};

use crate::backend::StallCause;

/// A group that can't pass an id, since a transaction that is still open may fill it.
#[derive(Clone, Debug)]
pub struct Stall {
    /// The stream.
    pub stream: String,
    /// The group.
    pub group: String,
    /// How long this process has seen it.
    pub lasts: Duration,
    /// The transactions that hold the stream's producer lock. Empty: none does any more, or it could not be
    /// found out.
    pub causes: Vec<StallCause>,
}

/// From how long on a wait counts as a stall.
pub(crate) const STALL_AFTER: Duration = Duration::from_secs(1);
/// From how long on the exact proof is tried: the cheap one settles in a few commits' time.
const EXACT_AFTER: Duration = Duration::from_millis(100);
/// Between two looks who is to blame.
const CAUSES_EVERY: Duration = Duration::from_secs(1);

/// Follows one group's waits. Time is passed in.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    since: Option<Instant>,
    looked: Option<Instant>,
}

impl Waits {
    /// A claim saw ids that it could not prove; `moved` when it could pass some all the same.
    pub(crate) fn waiting(&mut self, now: Instant, moved: bool) {
        if moved || self.since.is_none() {
            self.since = Some(now);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.since = None;
    }

    pub(crate) fn lasts(&self, now: Instant) -> Option<Duration> {
        self.since.map(|since| now.saturating_duration_since(since))
    }

    /// Whether the cheap proof is late.
    pub(crate) fn wants_exact(&self, now: Instant) -> bool {
        self.lasts(now).is_some_and(|lasts| lasts >= EXACT_AFTER)
    }

    /// Whether to look who is to blame now.
    pub(crate) fn wants_causes(&mut self, now: Instant) -> bool {
        let due = self.lasts(now).is_some_and(|lasts| lasts >= STALL_AFTER) && passed(self.looked, now, CAUSES_EVERY);
        if due {
            self.looked = Some(now);
        }
        due
    }
}

fn passed(last: Option<Instant>, now: Instant, every: Duration) -> bool {
    last.is_none_or(|last| now.saturating_duration_since(last) >= every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_proof_waits_for_the_cheap_one_and_the_causes_are_looked_for_once_a_second() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut waits = Waits::default();
        waits.waiting(at(0), false);
        assert!(!waits.wants_exact(at(50)));
        assert!(waits.wants_exact(at(100)));
        assert!(!waits.wants_causes(at(999)));
        assert!(waits.wants_causes(at(1000)));
        assert!(!waits.wants_causes(at(1999)));
        assert!(waits.wants_causes(at(2000)));
        waits.clear();
        assert!(!waits.wants_exact(at(9000)));
        assert!(!waits.wants_causes(at(9000)));
    }
}
