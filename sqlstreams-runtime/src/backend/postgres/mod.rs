//! Postgres 15 and later.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPoolOptions};
use sqlx::query::{Query, QueryScalar};
use sqlx::{PgPool, Postgres, SqlStr};
use tokio::sync::OnceCell;

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
use crate::migrate::quoted;
use crate::role::RoleKind;
use crate::time::Timestamp;

mod binding;
mod claim;
mod connection;
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
mod partition;
mod presence;
mod probe;
mod produce_with;
mod replay;
mod statements;
mod stream;
mod value;
mod wake;
mod worker;

use connection::{Beginnings, Checkout, Mode};
use partition::PartitionBound;
use statements::{SharedStatements, StreamStatements};

/// Statements are cached a connection: some twenty a stream.
const STATEMENT_CACHE: usize = 10_000;
const ENGINE_CONNECTIONS: u32 = 10;

/// The engine's port on one Postgres schema.
pub struct PostgresBackend {
    /// The user's pool: produces.
    pool: PgPool,
    /// The engine's own: claims, settlements and renewals must not wait behind the work that they keep alive.
    engine: PgPool,
    /// Renewals alone: they must not wait behind claims either.
    renewals: PgPool,
    mode: Mode,
    mark: probe::Mark,
    /// The mode was found to fit what the pools connect to.
    fits: OnceCell<()>,
    schema: String,
    shared: SharedStatements,
    beginnings: Beginnings,
    streams: RwLock<HashMap<StreamId, Arc<StreamState>>>,
    wake: wake::Listener,
}

pub(crate) struct StreamState {
    statements: StreamStatements,
    bound: PartitionBound,
}

impl PostgresBackend {
    /// Uses `pool` for produces, and opens a small pool of its own, lazily, with the same options. Connections are
    /// sessions: a pooler in between is refused at the first use.
    ///
    /// # Errors
    /// A schema name that is not `[a-z_][a-z0-9_]*`, at most 63 bytes.
    pub fn new(pool: PgPool, schema: &str) -> Result<Self, Error> {
        Self::with_mode(pool, schema, Mode::Direct)
    }

    /// As [`PostgresBackend::new`], for a pooler that gives its servers out for a transaction: each statement is
    /// within one, without a name, and nobody listens.
    ///
    /// # Errors
    /// As [`PostgresBackend::new`].
    pub fn pooled(pool: PgPool, schema: &str) -> Result<Self, Error> {
        Self::with_mode(pool, schema, Mode::Pooled)
    }

    fn with_mode(pool: PgPool, schema: &str, mode: Mode) -> Result<Self, Error> {
        check_schema(schema)?;
        let shared = SharedStatements::fill(Names { schema, stream: 0 });
        let mark = probe::Mark::new(shared.connection_look.clone());
        let options = pool.connect_options().as_ref().clone();
        let own = |connections| own_pool(connections, mode, &options, &mark, &shared);
        Ok(Self {
            pool,
            engine: own(ENGINE_CONNECTIONS),
            renewals: own(1),
            mode,
            mark,
            fits: OnceCell::new(),
            schema: schema.to_owned(),
            beginnings: Beginnings::of(&shared),
            shared,
            streams: RwLock::default(),
            wake: wake::Listener::default(),
        })
    }

    /// Looks whether the client's mode fits what its pools connect to, if that is not known yet.
    ///
    /// # Errors
    /// A pooler where there should be none, or one that pools by statement; a server that can't be reached.
    pub async fn probe(&self) -> Result<(), Error> {
        self.fits.get_or_try_init(|| probe::check(self)).await.copied()
    }

    /// A connection for claims and settlements.
    async fn engine(&self, doing: &str) -> Result<Checkout, Error> {
        self.checkout(&self.engine, doing).await
    }

    /// As [`PostgresBackend::engine`]; all until the answer is one transaction.
    async fn transaction(&self, doing: &str) -> Result<Checkout, Error> {
        self.probe().await?;
        self.transaction_on(&self.engine, doing).await
    }

    async fn renewals(&self, doing: &str) -> Result<Checkout, Error> {
        self.checkout(&self.renewals, doing).await
    }

    async fn producing(&self, doing: &str) -> Result<Checkout, Error> {
        self.checkout(&self.pool, doing).await
    }

    async fn checkout(&self, pool: &PgPool, doing: &str) -> Result<Checkout, Error> {
        self.probe().await?;
        match self.mode {
            Mode::Direct => self.acquire(pool, doing).await.map(Checkout::new),
            Mode::Pooled => self.transaction_on(pool, doing).await,
        }
    }

    async fn transaction_on(&self, pool: &PgPool, doing: &str) -> Result<Checkout, Error> {
        let connection = self.acquire(pool, doing).await?;
        let checkout = Checkout::begin(connection, self.mode, &self.beginnings, &self.shared).await;
        checkout.map_err(|err| error::map(doing, err))
    }

    /// A connection. When a new one is refused meanwhile, the reason at once: the pool would try again.
    async fn acquire(&self, pool: &PgPool, doing: &str) -> Result<PoolConnection<Postgres>, Error> {
        let mut refusals = self.mark.refusals();
        tokio::select! {
            biased;
            connection = pool.acquire() => connection.map_err(|err| error::map(doing, err).unsent()),
            _ = refusals.changed() => Err(probe::mismatch()),
        }
    }

    /// A statement, named on its server only where the server stays the connection's.
    fn query<'q>(&self, text: &SqlStr) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(text.clone()).persistent(self.mode == Mode::Direct)
    }

    /// As [`PostgresBackend::query`], for the first column.
    fn scalar<'q, T>(&self, text: &SqlStr) -> QueryScalar<'q, Postgres, T, PgArguments>
    where
        (T,): for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>,
    {
        sqlx::query_scalar(text.clone()).persistent(self.mode == Mode::Direct)
    }

    fn stream(&self, id: StreamId) -> Arc<StreamState> {
        let known = self.streams.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        known.unwrap_or_else(|| {
            let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
            let state = || {
                Arc::new(StreamState {
                    statements: StreamStatements::fill(Names { schema: &self.schema, stream: id.0 }),
                    bound: PartitionBound::default(),
                })
            };
            Arc::clone(streams.entry(id).or_insert_with(state))
        })
    }

    /// Every statement of this backend for `stream`, filled, with its name.
    pub fn statements(&self, stream: StreamId) -> Vec<(&'static str, sqlx::SqlStr)> {
        let mut all = self.shared.all();
        all.extend(self.stream(stream).statements.all());
        all
    }
}

/// A lazy pool of the engine's own. Sessions are started with what the engine's statements rely on; behind a pooler
/// each transaction is.
fn own_pool(
    connections: u32,
    mode: Mode,
    options: &PgConnectOptions,
    mark: &probe::Mark,
    shared: &SharedStatements,
) -> PgPool {
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(10))
        .idle_timeout(Duration::from_secs(300));
    if mode == Mode::Pooled {
        return checked_after_a_pause(pool, None).connect_lazy_with(pooled_options(options.clone()));
    }
    let prepare = shared.connection_prepare.clone();
    let started = mark.clone();
    let pool = pool.after_connect(move |connection, _| {
        let (prepare, mark) = (sqlx::raw_sql(prepare.clone()), started.clone());
        Box::pin(async move {
            mark.insist(connection).await?;
            prepare.execute(connection).await.map(drop)
        })
    });
    let options = engine_options(options.clone()).options([(probe::MARK, mark.value())]);
    checked_after_a_pause(pool, Some(mark.clone())).connect_lazy_with(options)
}

/// What the engine's statements rely on, whatever the user's pool or the database's defaults say: at
/// REPEATABLE READ, competing claims would fail with 40001.
fn engine_options(options: PgConnectOptions) -> PgConnectOptions {
    options.statement_cache_capacity(STATEMENT_CACHE).application_name("sqlstreams").options([
        ("default_transaction_isolation", "read committed"),
        ("lock_timeout", "5s"),
        ("statement_timeout", "60s"),
        ("idle_in_transaction_session_timeout", "30s"),
        ("client_min_messages", "warning"),
        // Cursors and leases are tables of a few rows, until a held snapshot keeps thousands of dead ones: a plan
        // that scans them, chosen while they were small, would decay with each claim.
        ("enable_seqscan", "off"),
        ("enable_bitmapscan", "off"),
        // On 17 and older an unavoidable scan counts as dear enough to be compiled.
        ("jit", "off"),
    ])
}

/// A pooler takes no parameter at a connection's start that it would have to pass on.
fn pooled_options(options: PgConnectOptions) -> PgConnectOptions {
    options.statement_cache_capacity(0).extra_float_digits(None).application_name("sqlstreams")
}

fn check_schema(schema: &str) -> Result<(), Error> {
    let mut bytes = schema.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    if first && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') && schema.len() <= 63 {
        return Ok(());
    }
    Err(Error::new(
        Kind::Declaration,
        "SQLS-0301",
        format!("schema name {schema:?} is not usable - write lower-case letters, digits and underscores, at most 63"),
    ))
}

#[async_trait]
impl Backend for PostgresBackend {
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
    async fn cursor_observe(&self, stream: StreamId, groups: &[GroupId]) -> Result<(), Error> {
        cursor::observe(self, stream, groups).await
    }
    async fn cursor_stall(&self, stream: StreamId, group: GroupId) -> Result<Vec<StallCause>, Error> {
        cursor::stall(self, stream, group).await
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
    async fn partition_ensure(&self, stream: StreamId) -> Result<Option<MessageId>, Error> {
        partition::ensure(self, stream, 0).await.map(Some)
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
    async fn wake_send(&self, streams: &[StreamId]) -> Result<(), Error> {
        wake::send(self, streams).await
    }
    async fn wake_wait(&self) -> Result<Vec<StreamId>, Error> {
        self.wake.wait(self).await
    }
    async fn close(&self) {
        tokio::join!(self.engine.close(), self.renewals.close(), self.wake.close());
    }
}

/// Asks the server for a sign of life before a connection is used after a pause, and not before each use: that
/// would double the exchanges. With a mark, the session must still be the client's own.
fn checked_after_a_pause(options: PgPoolOptions, mark: Option<probe::Mark>) -> PgPoolOptions {
    use sqlx::Connection;
    const PAUSE: Duration = Duration::from_millis(500);
    options.test_before_acquire(false).before_acquire(move |connection, usage| {
        let mark = mark.clone();
        Box::pin(async move {
            match mark {
                _ if usage.idle_for < PAUSE => Ok(true),
                Some(mark) => mark.is_on(connection).await,
                None => connection.ping().await.map(|()| true),
            }
        })
    })
}

/// The pool of a client that has none of its user's.
pub(crate) async fn connect(url: &str, pooled: bool) -> Result<PgPool, Error> {
    use std::str::FromStr;
    let options = PgConnectOptions::from_str(url).map_err(|err| {
        Error::new(
            Kind::Unavailable,
            "SQLS-0105",
            "the database url is not one of Postgres - write postgres://user@host/database",
        )
        .with_source(err)
    })?;
    let options = if pooled { pooled_options(options) } else { options };
    let pool = checked_after_a_pause(PgPoolOptions::new(), None).connect_with(options);
    pool.await.map_err(|err| error::map("connecting", err))
}

/// The statement by which the owner grants `role` what a process of `kind` needs.
pub(crate) fn grants(schema: &str, kind: RoleKind, role: &str) -> String {
    let shared = SharedStatements::fill(Names { schema, stream: 0 });
    // The kind first: a role's name may hold anything.
    let statement = shared.role_grant.as_str().replace("$2", &quoted(kind.as_str())).replace("$1", &quoted(role));
    format!("{};\n", statement.trim_end())
}

/// This build's migrations and their texts for `schema`.
pub(crate) fn migrations(schema: &str) -> Vec<(crate::migrate::Migration, String)> {
    migration::MIGRATIONS.iter().map(|migration| (*migration, migration::script(schema, migration))).collect()
}
