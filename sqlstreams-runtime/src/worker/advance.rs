//! Moves a group's stored position up to where everything is settled.

use std::time::{Duration, Instant};

use super::{Work, jittered};
use crate::error::Error;
use crate::identity::{GroupId, StreamId};
use crate::store::Store;

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Many dead rows make a look slow: it waits so many times as long as it took.
const PACE: u32 = 10;

pub(super) struct Advancer {
    store: Store,
    stream: StreamId,
    group: GroupId,
    wait: Duration,
}

impl Advancer {
    pub(super) fn new(store: Store, stream: StreamId, group: GroupId) -> Self {
        Self { store, stream, group, wait: SHORTEST }
    }
}

/// The wait after one that lasted `wait` and a look that took `took`; an idle group is looked at ever more rarely.
fn next(wait: Duration, moved: bool, took: Duration) -> Duration {
    let wait = if moved { SHORTEST } else { (wait * 2).min(LONGEST) };
    wait.max(took.saturating_mul(PACE))
}

impl Work for Advancer {
    async fn step(&mut self) -> Result<Duration, Error> {
        let began = Instant::now();
        let moved = self.store.cursor_advance(self.stream, self.group).await?;
        self.wait = next(self.wait, moved, began.elapsed());
        Ok(jittered(self.wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_group_is_looked_at_more_rarely_and_a_slow_look_paces_itself() {
        let mut wait = SHORTEST;
        let mut waits = Vec::new();
        for _ in 0..6 {
            wait = next(wait, false, Duration::ZERO);
            waits.push(wait.as_secs());
        }
        assert_eq!(waits, [2, 4, 8, 16, 30, 30]);
        assert_eq!(next(LONGEST, true, Duration::ZERO), SHORTEST);
        assert_eq!(next(SHORTEST, true, Duration::from_secs(7)), Duration::from_secs(70));
    }
}
