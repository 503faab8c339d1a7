//! SQLite: one database file, of one or several processes.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use sqlx::{ConnectOptions, Row, Sqlite};

use super::template::Names;
use super::{
    AttemptRow, Backend, BindingParams, BindingRow, ClaimParams, ClaimRow, DeadLetterRow, DiscardScope, ExceptionRow,
    ExceptionSettleParams, ExceptionTakeParams, GroupParams, GroupRow, KeyGateParams, KeyGateRow, LaneMove, LaneParams,
    LaneReadParams, LaneRow, LeaseRow, LetterBatch, LetterCounts, LetterParams, LetterRow, PositionRow, PresenceParams,
    ProduceWithParams, ProducedRow, ProgressParams, PromoteParams, PromoteRow, ReadParams, ReplayParams, ReplayRow,
    ReturnParams, SettleParams, StallCause, StreamParams, StreamRow, SweepParams, SweepRow, WorkerLookParams,
    WorkerLookRow, WorkerNames, WorkerStateRow,
};
use crate::error::{Error, Kind};
use crate::identity::{DelayedId, GroupId, LeaseToken, MessageId, PresenceId, StreamId, WorkerId, WorkerToken};
use crate::message::{NewMessage, StoredMessage};
use crate::migrate::Migration;
use crate::time::Timestamp;

mod binding;
mod claim;
mod connection;
mod crowd;
mod cursor;
mod delayed;
mod delivery;
mod error;
mod exception;
mod group;
mod idempotency;
mod key;
mod lane;
mod lease;
mod letter;
mod message;
pub(crate) mod migration;
mod parked;
mod presence;
mod produce_with;
mod replay;
mod statements;
mod stream;
mod value;
mod wake;
mod worker;

use connection::Connections;
use statements::{SharedStatements, StreamStatements, Transactions};

/// The engine's port on one SQLite database file.
pub struct SqliteBackend {
    connections: Connections,
    prefix: String,
    shared: SharedStatements,
    streams: RwLock<HashMap<StreamId, Arc<StreamState>>>,
    watch: wake::Watch,
    /// The durability of the user's own transactions was looked at.
    durability_known: AtomicBool,
}

pub(crate) struct StreamState {
    statements: StreamStatements,
    transactions: Transactions,
    /// The newest id that this process produced itself.
    produced: AtomicI64,
}

impl SqliteBackend {
    /// Opens connections of its own, lazily, with `options`, but in WAL mode, and with its own way of waiting
    /// for locks. The tables' names begin with `prefix`.
    ///
    /// # Errors
    /// An in-memory database, and a prefix that is not `[a-z_][a-z0-9_]*`, at most 63 bytes.
    pub fn open(options: SqliteConnectOptions, prefix: &str) -> Result<Self, Error> {
        check_prefix(prefix)?;
        if is_in_memory(&options) {
            return Err(error::in_memory());
        }
        let shared = SharedStatements::fill(Names { schema: prefix, stream: 0 });
        Ok(Self {
            connections: Connections::new(options, &shared),
            prefix: prefix.to_owned(),
            shared,
            streams: RwLock::default(),
            watch: wake::Watch::default(),
            durability_known: AtomicBool::new(false),
        })
    }

    fn stream(&self, id: StreamId) -> Arc<StreamState> {
        let known = self.streams.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        known.unwrap_or_else(|| {
            let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(streams.entry(id).or_insert_with(|| {
                let statements = StreamStatements::fill(Names { schema: &self.prefix, stream: id.0 });
                let transactions = Transactions::of(&self.shared, &statements);
                Arc::new(StreamState { statements, transactions, produced: AtomicI64::new(0) })
            }))
        })
    }

    /// The answer of a statement that asks whether there is anything to do.
    async fn finds(&self, doing: &str, look: Query<'_, Sqlite, SqliteArguments>) -> Result<bool, Error> {
        let rows = self.connections.read(doing, look).await?;
        let found = rows.first().map_or(Ok(false), |row| row.try_get(0));
        found.map_err(|err| error::map(doing, err))
    }

    /// Every statement of this backend for `stream`, filled, with its name.
    pub fn statements(&self, stream: StreamId) -> Vec<(&'static str, sqlx::SqlStr)> {
        let mut all = self.shared.all();
        all.extend(self.stream(stream).statements.all());
        all
    }
}

/// Opens a pool for a user's own transactions: WAL mode, every commit on the disk. A file that is not there
/// is created, unless the URL names a `mode`.
///
/// # Errors
/// A URL that names no file, and a file that can't be opened.
pub async fn connect(url: &str) -> Result<SqlitePool, Error> {
    let options = SqliteConnectOptions::from_str(url).map_err(|err| error::map("reading the database's URL", err))?;
    if is_in_memory(&options) {
        return Err(error::in_memory());
    }
    let options = if url.contains("mode=") { options } else { options.create_if_missing(true) };
    let options = options.journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().connect_with(options).await;
    pool.map_err(|err| error::map("opening the database file", err))
}

/// This build's migrations, oldest first, and their texts for the prefix.
pub fn migrations(prefix: &str) -> Vec<(Migration, String)> {
    migration::MIGRATIONS.iter().map(|migration| (*migration, migration::script(prefix, migration))).collect()
}

fn is_in_memory(options: &SqliteConnectOptions) -> bool {
    let name = options.get_filename().to_string_lossy();
    let by_name =
        name.is_empty() || name.contains(":memory:") || (name.starts_with("file:") && name.contains("mode=memory"));
    // The flag shows in the URL only, and some files' names make no URL.
    by_name
        || options
            .clone()
            .filename("file")
            .to_url_lossy()
            .query_pairs()
            .any(|(key, value)| key == "mode" && value == "memory")
}

fn check_prefix(prefix: &str) -> Result<(), Error> {
    let mut bytes = prefix.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    if first && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') && prefix.len() <= 63 {
        return Ok(());
    }
    Err(Error::new(
        Kind::Declaration,
        "SQLS-0301",
        format!("table prefix {prefix:?} is not usable - write lower-case letters, digits and underscores, at most 63"),
    ))
}

#[async_trait]
impl Backend for SqliteBackend {
    async fn migration_apply(&self) -> Result<(), Error> {
        migration::apply(self).await
    }
    async fn migration_check(&self) -> Result<(), Error> {
        migration::check(self).await
    }
    async fn stream_register(&self, params: &StreamParams) -> Result<StreamRow, Error> {
        stream::register(self, params).await
    }
    async fn group_register(&self, params: &GroupParams) -> Result<GroupRow, Error> {
        group::register(self, params).await
    }
    async fn binding_declare(&self, params: &BindingParams) -> Result<BindingRow, Error> {
        binding::declare(self, params).await
    }
    async fn presence_enter(&self, params: &PresenceParams) -> Result<(), Error> {
        presence::enter(self, params).await
    }
    async fn presence_renew(&self, id: PresenceId, ttl: Duration) -> Result<bool, Error> {
        presence::renew(self, id, ttl).await
    }
    async fn presence_leave(&self, id: PresenceId) -> Result<(), Error> {
        presence::leave(self, id).await
    }
    async fn message_produce(
        &self,
        stream: StreamId,
        version: u32,
        codec: i16,
        messages: &[NewMessage],
    ) -> Result<Vec<MessageId>, Error> {
        message::produce(self, stream, version, codec, messages).await
    }
    async fn message_produce_with(&self, params: &ProduceWithParams<'_>) -> Result<Vec<ProducedRow>, Error> {
        produce_with::produce(self, params).await
    }
    async fn delayed_cancel(&self, stream: StreamId, id: DelayedId) -> Result<bool, Error> {
        delayed::cancel(self, stream, id).await
    }
    async fn delayed_promote(&self, params: &PromoteParams) -> Result<PromoteRow, Error> {
        delayed::promote(self, params).await
    }
    async fn delayed_heads(&self, streams: &[StreamId]) -> Result<Vec<(StreamId, DelayedId)>, Error> {
        delayed::heads(self, streams).await
    }
    async fn idempotency_sweep(&self, params: &SweepParams) -> Result<SweepRow, Error> {
        idempotency::sweep(self, params).await
    }
    async fn message_read(&self, params: &ReadParams) -> Result<Vec<StoredMessage>, Error> {
        message::read(self, params).await
    }
    async fn claim_take(&self, params: &ClaimParams) -> Result<ClaimRow, Error> {
        claim::take(self, params).await
    }
    async fn lease_find(&self, stream: StreamId, token: LeaseToken) -> Result<Option<LeaseRow>, Error> {
        lease::find(self, stream, token).await
    }
    async fn lease_settle(&self, params: &SettleParams) -> Result<bool, Error> {
        lease::settle(self, params).await
    }
    async fn lease_reclaim(
        &self,
        stream: StreamId,
        group: GroupId,
        presence: PresenceId,
        token: LeaseToken,
    ) -> Result<Option<LeaseRow>, Error> {
        lease::reclaim(self, stream, group, presence, token).await
    }
    async fn lease_report(
        &self,
        stream: StreamId,
        group: GroupId,
        presence: PresenceId,
        tokens: &[LeaseToken],
        progress: &[ProgressParams],
    ) -> Result<Vec<LeaseToken>, Error> {
        lease::report(self, stream, group, presence, tokens, progress).await
    }
    async fn lease_return(&self, stream: StreamId, leases: &[ReturnParams]) -> Result<(), Error> {
        lease::give_back(self, stream, leases).await
    }
    async fn parked_take(&self, params: &ClaimParams, versions: &[i32]) -> Result<Option<LeaseRow>, Error> {
        parked::take(self, params, versions).await
    }
    async fn exception_take(&self, params: &ExceptionTakeParams) -> Result<Vec<ExceptionRow>, Error> {
        exception::take(self, params).await
    }
    async fn exception_settle(&self, params: &ExceptionSettleParams) -> Result<Vec<MessageId>, Error> {
        exception::settle(self, params).await
    }
    async fn key_gate(&self, params: &KeyGateParams) -> Result<Vec<KeyGateRow>, Error> {
        key::gate(self, params).await
    }
    async fn key_ticket(
        &self,
        stream: StreamId,
        group: GroupId,
        token: LeaseToken,
        message: MessageId,
    ) -> Result<Option<i64>, Error> {
        key::ticket(self, stream, group, token, message).await
    }
    async fn lane_read(&self, params: &LaneReadParams) -> Result<Vec<StoredMessage>, Error> {
        lane::read(self, params).await
    }
    async fn lane_list(
        &self,
        stream: StreamId,
        group: GroupId,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<LaneRow>, Error> {
        lane::list(self, stream, group, after, limit).await
    }
    async fn lane_move(&self, lane: &LaneParams, to: &LaneMove) -> Result<Option<i64>, Error> {
        lane::move_on(self, lane, to).await
    }
    async fn lane_bury(
        &self,
        lane: &LaneParams,
        error: &str,
        successor: Option<(MessageId, u32)>,
        held_to: i64,
    ) -> Result<bool, Error> {
        lane::bury(self, lane, error, successor, held_to).await
    }
    async fn lane_end(&self, lane: &LaneParams, held_to: i64) -> Result<bool, Error> {
        lane::end(self, lane, held_to).await
    }
    async fn exception_return(&self, stream: StreamId, group: GroupId, token: LeaseToken) -> Result<(), Error> {
        exception::give_back(self, stream, group, token).await
    }
    async fn exception_due(&self, stream: StreamId, group: GroupId) -> Result<Option<Duration>, Error> {
        exception::due(self, stream, group).await
    }
    async fn letter_list(&self, params: &LetterParams) -> Result<Vec<DeadLetterRow>, Error> {
        letter::list(self, params).await
    }
    async fn letter_count(&self, params: &LetterParams, payloads: bool) -> Result<LetterCounts, Error> {
        letter::count(self, params, payloads).await
    }
    async fn letter_read(&self, stream: StreamId, group: GroupId, id: MessageId) -> Result<Option<LetterRow>, Error> {
        letter::read(self, stream, group, id).await
    }
    async fn letter_redrive(
        &self,
        params: &LetterParams,
        spread: Duration,
        now: Option<Timestamp>,
    ) -> Result<LetterBatch, Error> {
        letter::redrive(self, params, spread, now).await
    }
    async fn letter_discard(&self, params: &LetterParams, scope: DiscardScope) -> Result<LetterBatch, Error> {
        letter::discard(self, params, scope).await
    }
    /// Writers are serial here: no id below the newest can still be filled in.
    async fn cursor_observe(&self, _stream: StreamId, _groups: &[GroupId]) -> Result<(), Error> {
        Ok(())
    }
    async fn cursor_stall(&self, _stream: StreamId, _group: GroupId) -> Result<Vec<StallCause>, Error> {
        Ok(Vec::new())
    }
    async fn cursor_advance(&self, stream: StreamId, group: GroupId) -> Result<bool, Error> {
        cursor::advance(self, stream, group).await
    }
    async fn cursor_position(&self, stream: StreamId, group: GroupId) -> Result<PositionRow, Error> {
        cursor::position(self, stream, group).await
    }
    async fn replay_look(&self, params: &ReplayParams) -> Result<ReplayRow, Error> {
        replay::look(self, params).await
    }
    async fn replay_move(&self, params: &ReplayParams) -> Result<ReplayRow, Error> {
        replay::move_to(self, params).await
    }
    async fn replay_pause(&self, stream: StreamId, group: GroupId, length: Option<Duration>) -> Result<(), Error> {
        replay::pause(self, stream, group, length).await
    }
    async fn delivery_append(&self, stream: StreamId, token: LeaseToken, handled: &[MessageId]) -> Result<(), Error> {
        delivery::append(self, stream, token, handled).await
    }
    async fn delivery_list(
        &self,
        stream: StreamId,
        group: GroupId,
        message: MessageId,
        limit: i64,
    ) -> Result<Vec<AttemptRow>, Error> {
        delivery::list(self, stream, group, message, limit).await
    }
    async fn partition_ensure(&self, _stream: StreamId) -> Result<Option<MessageId>, Error> {
        Ok(None)
    }
    async fn worker_declare(&self, names: WorkerNames) -> Result<(), Error> {
        worker::declare(self, names).await
    }
    async fn worker_look(&self, params: &WorkerLookParams) -> Result<WorkerLookRow, Error> {
        worker::look(self, params).await
    }
    async fn worker_take(
        &self,
        owner: PresenceId,
        workers: &[(WorkerId, WorkerToken)],
        now: Option<Timestamp>,
    ) -> Result<Vec<WorkerToken>, Error> {
        worker::take(self, owner, workers, now).await
    }
    async fn worker_list(&self, now: Option<Timestamp>) -> Result<Vec<WorkerStateRow>, Error> {
        worker::list(self, now).await
    }
    async fn worker_target(&self, id: WorkerId, target: i32) -> Result<bool, Error> {
        worker::target(self, id, target).await
    }
    /// A commit is its own message: `wake_wait` of other processes sees it.
    async fn wake_send(&self, _streams: &[StreamId]) -> Result<(), Error> {
        Ok(())
    }
    async fn wake_wait(&self) -> Result<Vec<StreamId>, Error> {
        self.watch.wait(self).await
    }
    async fn close(&self) {
        self.connections.close().await;
        self.watch.close().await;
    }
}
