//! Hints between processes: every commit shows in `pragma data_version` of other connections.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::Mutex;

use super::{SqliteBackend, error, value};
use crate::error::Error;
use crate::identity::StreamId;

const DOING: &str = "watching for new messages";
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);

/// The watching connection; `None` until it is needed, and again after it broke.
#[derive(Default)]
pub(super) struct Watch {
    state: Mutex<Option<Seen>>,
}

struct Seen {
    connection: SqliteConnection,
    /// `pragma data_version` means something on one connection only.
    version: i64,
    /// Each stream's newest id.
    heads: HashMap<i64, i64>,
    news: Instant,
}

impl Watch {
    pub(super) async fn wait(&self, backend: &SqliteBackend) -> Result<Vec<StreamId>, Error> {
        let mut state = self.state.lock().await;
        let Some(seen) = &mut *state else {
            let mut connection = backend.connections.open_reader(DOING).await?;
            let version = version(backend, &mut connection).await.map_err(|err| error::map(DOING, err))?;
            let heads = heads(backend, &mut connection).await.map_err(|err| error::map(DOING, err))?;
            *state = Some(Seen { connection, version, heads, news: Instant::now() });
            // Whatever happened before was not seen: every stream may have news.
            return Ok(Vec::new());
        };
        let streams = seen.news(backend).await;
        if streams.is_err() {
            *state = None;
        }
        streams
    }

    /// To be called after the other connections are closed, so that a waiting task lets go.
    pub(super) async fn close(&self) {
        *self.state.lock().await = None;
    }
}

impl Seen {
    /// The streams to which another process appended. Looks often while there is news, and ever more rarely without.
    async fn news(&mut self, backend: &SqliteBackend) -> Result<Vec<StreamId>, Error> {
        loop {
            tokio::time::sleep((self.news.elapsed() / 64).clamp(SHORTEST, LONGEST)).await;
            if backend.connections.is_closed() {
                return Err(error::closed(DOING));
            }
            match self.look(backend).await {
                Ok(streams) if streams.is_empty() => {}
                Ok(streams) => {
                    self.news = Instant::now();
                    return Ok(streams);
                }
                Err(err) if error::is_busy(&err) => {}
                Err(err) => return Err(error::map(DOING, err)),
            }
        }
    }

    async fn look(&mut self, backend: &SqliteBackend) -> Result<Vec<StreamId>, sqlx::Error> {
        let version = version(backend, &mut self.connection).await?;
        if version == self.version {
            return Ok(Vec::new());
        }
        let heads = heads(backend, &mut self.connection).await?;
        let streams = self.higher(backend, &heads);
        self.version = version;
        self.heads = heads;
        Ok(streams)
    }

    /// What this process produced itself is no news: its own consumers know, and whatever another process
    /// appended meanwhile has lower ids, which they take as well.
    fn higher(&self, backend: &SqliteBackend, heads: &HashMap<i64, i64>) -> Vec<StreamId> {
        let mut streams = Vec::new();
        for (&stream, &head) in heads {
            let known = self.heads.get(&stream).copied().unwrap_or(0);
            if head > known && head > backend.stream(StreamId(stream)).produced.load(Ordering::Relaxed) {
                streams.push(StreamId(stream));
            }
        }
        streams
    }
}

async fn version(backend: &SqliteBackend, connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query(backend.shared.wake_version.clone()).fetch_one(connection).await?.try_get(0)
}

async fn heads(backend: &SqliteBackend, connection: &mut SqliteConnection) -> Result<HashMap<i64, i64>, sqlx::Error> {
    let row = sqlx::query(backend.shared.wake_heads.clone()).fetch_one(connection).await?;
    let json = value::bytes(&row, 0)?.unwrap_or(b"{}");
    let heads: HashMap<String, i64> = serde_json::from_slice(json).map_err(|err| sqlx::Error::Decode(Box::new(err)))?;
    Ok(heads.into_iter().filter_map(|(stream, head)| Some((stream.parse().ok()?, head))).collect())
}
