//! Removes expired idempotency keys.

use std::time::Duration;

use super::{Work, jittered};
use crate::backend::SweepParams;
use crate::error::Error;
use crate::identity::StreamId;
use crate::store::Store;
use crate::time::Timestamp;

const LIMIT: i64 = 1000;
const EVERY: Duration = Duration::from_secs(60);
/// Between two statements of one sweep, for others.
const PAUSE: Duration = Duration::from_millis(20);
/// Every so many sweeps look without the bound: a transaction may commit a key late.
const UNBOUNDED: u32 = 10;

pub(super) struct Sweeper {
    store: Store,
    stream: StreamId,
    reached: Option<Timestamp>,
    sweeps: u32,
}

impl Sweeper {
    pub(super) fn new(store: Store, stream: StreamId) -> Self {
        Self { store, stream, reached: None, sweeps: 0 }
    }
}

impl Work for Sweeper {
    async fn step(&mut self) -> Result<Duration, Error> {
        let since = self.reached.filter(|_| !self.sweeps.is_multiple_of(UNBOUNDED));
        let params = SweepParams { stream: self.stream, since, limit: LIMIT, now: None };
        let row = self.store.idempotency_sweep(&params).await?;
        self.reached = self.reached.max(row.reached);
        if row.swept >= LIMIT {
            return Ok(PAUSE);
        }
        self.sweeps = self.sweeps.wrapping_add(1);
        Ok(jittered(EVERY))
    }
}
