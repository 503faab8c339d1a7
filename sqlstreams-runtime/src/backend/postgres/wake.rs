//! Hints between processes: NOTIFY after commit, LISTEN where the connection allows it.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::PgListener;
use tokio::sync::Mutex;

use super::connection::Mode;
use super::{PostgresBackend, error};
use crate::error::Error;
use crate::identity::StreamId;

const DOING: &str = "listening for new messages";

/// The listening connection; `None` until it is needed, and again after it broke.
#[derive(Default)]
pub(super) struct Listener {
    connection: Mutex<Option<PgListener>>,
    reclaims: AtomicU32,
    takings: AtomicU32,
}

impl Listener {
    /// Gives the connection back, which its pool waits for when it closes. A wait that is under way ends with the pool.
    pub(super) async fn close(&self) {
        *self.connection.lock().await = None;
    }

    /// True once in a while: then a reclaim also walks the leases for owners without a presence row.
    pub(super) fn orphan_turn(&self) -> bool {
        self.reclaims.fetch_add(1, Ordering::Relaxed).is_multiple_of(64)
    }

    /// The same for messages in trouble.
    pub(super) fn taking_orphan_turn(&self) -> bool {
        self.takings.fetch_add(1, Ordering::Relaxed).is_multiple_of(64)
    }

    pub(super) async fn wait(&self, backend: &PostgresBackend) -> Result<Vec<StreamId>, Error> {
        if backend.mode == Mode::Pooled {
            // A session that listens is what a pooler does not give.
            return std::future::pending().await;
        }
        backend.probe().await?;
        let mut connection = self.connection.lock().await;
        let listener = match &mut *connection {
            Some(listener) => listener,
            None => {
                let listening = async {
                    let mut listener = PgListener::connect_with(&backend.engine).await?;
                    listener.listen(&channel(&backend.schema)).await?;
                    Ok(listener)
                };
                *connection = Some(listening.await.map_err(|err| error::map(DOING, err))?);
                // Whatever was told before is lost: every stream may have news.
                return Ok(Vec::new());
            }
        };
        match listener.try_recv().await {
            Ok(Some(told)) => Ok(told.payload().split(',').filter_map(|id| id.parse().ok()).map(StreamId).collect()),
            Ok(None) => Ok(Vec::new()),
            Err(err) => {
                *connection = None;
                Err(error::map(DOING, err))
            }
        }
    }
}

pub(super) async fn send(backend: &PostgresBackend, streams: &[StreamId]) -> Result<(), Error> {
    const DOING: &str = "telling of new messages";
    let ids: Vec<String> = streams.iter().map(StreamId::to_string).collect();
    let mut connection = backend.engine(DOING).await?;
    let result = backend
        .query(&backend.shared.wake_send)
        .bind(channel(&backend.schema))
        .bind(ids.join(","))
        .execute(&mut *connection)
        .await;
    connection.answer(DOING, result.map(|_| ())).await
}

fn channel(schema: &str) -> String {
    // A channel's name is an identifier: 63 bytes at most.
    let mut channel = format!("sqlstreams_{schema}");
    channel.truncate(63);
    channel
}
