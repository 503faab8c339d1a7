//! Room in the partitioned log ahead of its producers.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::PostgresBackend;
use crate::error::Error;
use crate::identity::{MessageId, StreamId};

pub(super) const ADDING: &str = "adding a partition";

/// What this process knows of a stream's partitions.
#[derive(Default)]
pub(super) struct PartitionBound {
    /// Ids from here on need a look; 0 when nothing is known.
    renew_from: AtomicI64,
    renewing: AtomicBool,
}

impl PartitionBound {
    /// Whether the producer of `id` should make room; true for one caller at a time.
    pub(super) fn wants_room(&self, id: i64) -> bool {
        id >= self.renew_from.load(Ordering::Relaxed) && !self.renewing.swap(true, Ordering::AcqRel)
    }
}

/// Lets the next caller look, also when this one's future is dropped.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The first id without a partition, after two partitions exist beyond the current one, or beyond the one that
/// the next `room` ids reach.
pub(super) async fn ensure(backend: &PostgresBackend, stream: StreamId, room: i64) -> Result<MessageId, Error> {
    let mut connection = backend.engine(ADDING).await?;
    let bound = backend
        .scalar::<i64>(&backend.shared.partition_ensure)
        .bind(stream.0)
        .bind(room)
        .fetch_one(&mut *connection)
        .await;
    let bound = connection.answer(ADDING, bound).await?;
    Ok(MessageId(bound))
}

/// What one insert may need: each partition that it opens is locked.
pub(super) const MOST_AT_ONCE: i64 = 500;
/// What `partition_ensure` adds at most.
const MOST_A_CALL: i64 = 100;

/// Makes room for `room` ids; false when that takes more partitions than one insert may need.
pub(super) async fn make_room(backend: &PostgresBackend, stream: StreamId, room: i64) -> Result<bool, Error> {
    let mut bound = ensure(backend, stream, room).await?;
    for _ in 0..MOST_AT_ONCE / MOST_A_CALL {
        let next = ensure(backend, stream, room).await?;
        if next <= bound {
            return Ok(true);
        }
        bound = next;
    }
    Ok(false)
}

/// Makes room when `last` has come close to the end of it. A failure costs nothing: the insert that finds no
/// partition makes room itself.
pub(super) async fn keep_ahead(backend: &PostgresBackend, stream: StreamId, last: i64) {
    let state = backend.stream(stream);
    let _turn = Turn(&state.bound.renewing);
    match ensure(backend, stream, 0).await {
        Ok(bound) => {
            // Three partitions lie below the bound; look again when one of them is used up.
            let from = last + ((bound.0 - last) / 3).max(1);
            state.bound.renew_from.store(from, Ordering::Relaxed);
        }
        Err(err) => tracing::warn!(%stream, error = %err, "could not add a partition ahead of the producers"),
    }
}
