//! How processes share the one write lock of a database file.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::error;
use crate::error::Error;

/// How long a call waits for the locks of other processes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at a lock that another process holds, in microseconds. SQLite's own busy timeout waits
/// longer each time, and a process that writes in a loop starves the others.
const RETRY_MICROS: std::ops::RangeInclusive<u64> = 200..=1_000;
/// What a process leaves between its commits while others want to write.
const GAP: Duration = Duration::from_micros(300);
/// How long after a meeting at the lock other processes count as wanting to write.
const NEARNESS: Duration = Duration::from_secs(1);

/// Whether other processes want to write as well, as far as this one has noticed.
pub(super) struct Crowd {
    start: Instant,
    /// Microseconds from the start to the last meeting; 0 for none.
    met: AtomicU64,
}

impl Crowd {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), met: AtomicU64::new(0) }
    }

    pub(super) fn meet(&self) {
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.met.store(now.max(1), Ordering::Relaxed);
    }

    pub(super) fn is_near(&self) -> bool {
        match self.met.load(Ordering::Relaxed) {
            0 => false,
            met => self.start.elapsed().saturating_sub(Duration::from_micros(met)) < NEARNESS,
        }
    }
}

/// The time that one call waits for locks, all in all.
pub(super) struct Patience {
    start: Instant,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { start: Instant::now() }
    }

    pub(super) async fn wait(&self, doing: &str) -> Result<(), Error> {
        if self.start.elapsed() > PATIENCE {
            return Err(error::busy(doing, PATIENCE));
        }
        nap().await;
        Ok(())
    }
}

/// Until the next look at a lock that another process holds.
pub(super) async fn nap() {
    sleep(Duration::from_micros(rand::random_range(RETRY_MICROS))).await;
}

/// Lets others come to the lock between two commits of this process.
pub(super) async fn leave_gap(last_commit: Option<Instant>) {
    let since = last_commit.map_or(GAP, |commit| commit.elapsed());
    if since < GAP {
        sleep(GAP - since).await;
    }
}

/// For less than the millisecond that is the least of the runtime's timer.
async fn sleep(duration: Duration) {
    // An error means that the runtime is shutting down: then nobody waits for this one.
    drop(tokio::task::spawn_blocking(move || std::thread::sleep(duration)).await);
}
