//! What the library is measured against: the same rows through bare sqlx, one statement a batch.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sqlstreams::sqlx::{Pool, Transaction};
use sqlstreams::{Client, Database};
use sqlstreams_runtime::identity::StreamId;

use crate::payload::Order;
use crate::run::Result;

mod postgres;
mod sqlite;

pub use postgres::Server;
pub use sqlite::Folder;

/// Rows of one bare read.
pub const READ: i64 = 1_000;

/// A database that the library and bare statements can be compared on.
pub trait Yardstick: Database {
    /// The numbers of partitions between which claims are compared.
    const PARTITIONS: &'static [i64];
    /// Where databases are made.
    type Place: Sync;

    /// An emptied place: the same for every run.
    fn open(place: &Self::Place) -> impl Future<Output = Result<Setting<Self>>> + Send;

    /// Inserts the payloads with one statement; returns the highest id.
    fn insert(pool: &Pool<Self>, payloads: Vec<String>) -> impl Future<Output = Result<i64>> + Send;

    /// Reads at most [`READ`] rows with ids in (low, high], decodes each payload and hands it over.
    fn read(
        pool: &Pool<Self>,
        low: i64,
        high: i64,
        handle: impl FnMut(Order) + Send,
    ) -> impl Future<Output = Result<Read>> + Send;

    /// Where the database's write-ahead log ends now, in bytes; `None` where that says nothing.
    fn wal(pool: &Pool<Self>) -> impl Future<Output = Result<Option<i64>>> + Send;

    /// A transaction that keeps its snapshot until it is dropped.
    fn hold(pool: &Pool<Self>) -> impl Future<Output = Result<Transaction<'static, Self>>> + Send;

    /// Gives the stream's log as many partitions in use, each with a message, and two empty ones ahead; the
    /// next message goes into the last one in use.
    fn partition(pool: &Pool<Self>, stream: StreamId, used: i64) -> impl Future<Output = Result<()>> + Send;

    /// The database's version and the settings that matter.
    fn describe(place: &Self::Place) -> impl Future<Output = Result<Vec<String>>> + Send;
}

/// What a read came to.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    pub rows: u64,
    /// The last id; `low` when there was no row.
    pub last: i64,
}

/// An empty table for the bare statements, and an installation without streams.
pub struct Setting<Db: Yardstick> {
    pub url: String,
    pub client: Client<Db>,
    /// For the bare statements.
    pub writer: Pool<Db>,
    pub reader: Pool<Db>,
    /// Removes the files with the setting.
    _folder: Option<tempfile::TempDir>,
}

impl<Db: Yardstick> Setting<Db> {
    /// Where the write-ahead log ends now.
    pub async fn wal(&self) -> Result<Option<i64>> {
        Db::wal(self.client.pool()).await
    }

    /// WAL bytes a message since `start`.
    pub async fn wal_each(&self, start: Option<i64>, messages: u64) -> Result<Option<f64>> {
        let end = self.wal().await?;
        Ok(start.zip(end).map(|(start, end)| (end - start) as f64 / messages as f64))
    }

    /// Closes every connection.
    pub async fn close(self) {
        self.client.close().await;
        self.client.pool().close().await;
        self.writer.close().await;
        self.reader.close().await;
    }
}

/// Up to where a reader of the bare table can go while inserts run: ids become visible out of their order, and
/// a reader that just follows the highest one passes rows that it has not seen. An insert draws its ids after
/// it began, so they are higher than all that were known then.
#[derive(Default)]
pub struct Horizon {
    state: Mutex<Inserts>,
}

#[derive(Default)]
struct Inserts {
    newest: i64,
    tickets: u64,
    /// The newest id that was known when an insert under way began.
    running: HashMap<u64, i64>,
}

impl Horizon {
    /// To be called before an insert.
    pub fn begin(&self) -> u64 {
        let mut state = self.lock();
        let (ticket, newest) = (state.tickets, state.newest);
        state.tickets += 1;
        state.running.insert(ticket, newest);
        ticket
    }

    /// To be called when the insert has committed, with its highest id.
    pub fn end(&self, ticket: u64, last: i64) {
        let mut state = self.lock();
        state.running.remove(&ticket);
        state.newest = state.newest.max(last);
    }

    /// Everything up to here is visible.
    pub fn safe(&self) -> i64 {
        let state = self.lock();
        state.running.values().copied().min().unwrap_or(state.newest)
    }

    fn lock(&self) -> MutexGuard<'_, Inserts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
