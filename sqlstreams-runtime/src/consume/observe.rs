//! The exact proof's observations, shared by the groups of a stream in one client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::session::lock;
use crate::identity::{GroupId, StreamId};

/// An observation costs the server about a millisecond: a stream's groups share one.
const EVERY: Duration = Duration::from_secs(1);

/// The streams that a client consumes.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    streams: Mutex<HashMap<StreamId, Arc<Observing>>>,
}

impl Observations {
    pub(crate) fn of(&self, stream: StreamId) -> Arc<Observing> {
        Arc::clone(lock(&self.streams).entry(stream).or_default())
    }
}

/// Who waits for an observation of one stream, and when the last one was made. Time is passed in.
#[derive(Debug, Default)]
pub(crate) struct Observing {
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    last: Option<Instant>,
    waiting: Vec<GroupId>,
}

impl Observing {
    /// `group` waits. Answers the groups to observe for, if it is time and the caller is the one to do it.
    pub(crate) fn wants(&self, group: GroupId, now: Instant) -> Option<Vec<GroupId>> {
        let mut turn = lock(&self.turn);
        if !turn.waiting.contains(&group) {
            turn.waiting.push(group);
        }
        if turn.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            return None;
        }
        turn.last = Some(now);
        Some(std::mem::take(&mut turn.waiting))
    }

    /// `group` waits no more.
    pub(crate) fn leave(&self, group: GroupId) {
        lock(&self.turn).waiting.retain(|waiting| *waiting != group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_stream_share_one_observation_a_second() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let observations = Observations::default();
        let stream = observations.of(StreamId(1));
        assert_eq!(stream.wants(GroupId(1), at(0)), Some(vec![GroupId(1)]));
        assert_eq!(stream.wants(GroupId(2), at(10)), None);
        assert_eq!(stream.wants(GroupId(3), at(20)), None);
        stream.leave(GroupId(3));
        assert_eq!(stream.wants(GroupId(1), at(999)), None);
        assert_eq!(observations.of(StreamId(2)).wants(GroupId(4), at(999)), Some(vec![GroupId(4)]));
        assert_eq!(observations.of(StreamId(1)).wants(GroupId(1), at(1000)), Some(vec![GroupId(2), GroupId(1)]));
    }
}
