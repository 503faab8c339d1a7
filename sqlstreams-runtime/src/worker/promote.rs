//! Moves delayed messages into the log when they are due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Work;
use crate::backend::PromoteParams;
use crate::error::Error;
use crate::hub::{Alarm, Hub};
use crate::identity::StreamId;
use crate::store::Store;
use crate::time::Timestamp;

/// Messages that one statement moves.
const LIMIT: i64 = 500;
/// Without the bound so often: a transaction that took its time may commit a message that was due before.
const UNBOUNDED: Duration = Duration::from_secs(30);
/// What is due that much before the last one is looked at all the same, for transactions that were not so slow.
const SLACK: Duration = Duration::from_secs(2);
/// After news the messages may not be committed yet: looks are that close for as long as unbounded ones are apart.
const CLOSE: Duration = Duration::from_secs(1);

pub(super) struct Promoter {
    store: Store,
    hub: Arc<Hub>,
    stream: StreamId,
    alarm: Arc<Alarm>,
    reached: Option<Timestamp>,
    unbounded_at: Instant,
    close_until: Instant,
}

impl Promoter {
    pub(super) fn new(store: Store, hub: Arc<Hub>, stream: StreamId) -> Self {
        let alarm = Arc::new(Alarm::default());
        hub.subscribe_delays(stream, &alarm);
        let now = Instant::now();
        Self { store, hub, stream, alarm, reached: None, unbounded_at: now, close_until: now }
    }

    pub(super) fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }
}

impl Work for Promoter {
    async fn step(&mut self) -> Result<Duration, Error> {
        let now = Instant::now();
        let unbounded = now >= self.unbounded_at;
        let since = self.reached.filter(|_| !unbounded).map(|reached| reached.minus(SLACK));
        let params = PromoteParams { stream: self.stream, since, limit: LIMIT, now: None };
        let row = self.store.delayed_promote(&params).await?;
        if unbounded && row.promoted < LIMIT {
            self.unbounded_at = now + UNBOUNDED;
        }
        self.reached = self.reached.max(row.reached);
        if row.promoted > 0 {
            self.hub.produced(self.stream);
        }
        if row.promoted >= LIMIT {
            return Ok(Duration::ZERO);
        }
        let longest = if now < self.close_until { CLOSE } else { UNBOUNDED };
        Ok(row.next.map_or(longest, |next| next.min(longest)))
    }

    async fn rest(&mut self, wait: Duration) {
        if wait.is_zero() {
            return tokio::task::yield_now().await;
        }
        let wakes_at = Instant::now() + wait;
        self.alarm.sleep_until(wakes_at).await;
        if Instant::now() < wakes_at {
            self.close_until = Instant::now() + UNBOUNDED;
        }
    }
}
