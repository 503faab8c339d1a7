//! Postgres 15 and later.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::template::Names;
use super::{
    AttemptRow, Backend, BindingParams, BindingRow, ClaimParams, ClaimRow, DeadLetterRow, DiscardScope, ExceptionRow,
    ExceptionSettleParams, ExceptionTakeParams, GroupParams, GroupRow, KeyGateParams, KeyGateRow, LaneMove, LaneParams,
    LaneReadParams, LeaseRow, LetterBatch, LetterCounts, LetterParams, LetterRow, PositionRow, PresenceParams,
    ProgressParams, ReadParams, ReplayParams, ReplayRow, ReturnParams, SettleParams, StallCause, StreamParams,
    StreamRow,
};
use crate::error::{Error, Kind};
use crate::identity::{GroupId, LeaseToken, MessageId, PresenceId, StreamId};
use crate::message::{NewMessage, StoredMessage};
use crate::migrate::quoted;
use crate::role::RoleKind;
use crate::time::Timestamp;

mod binding;
mod claim;
mod connection;
mod cursor;
mod delivery;
mod error;
mod exception;
mod group;
mod key;
mod lane;
mod lease;
mod letter;
mod message;
pub(crate) mod migration;
mod parked;
mod partition;
mod presence;
mod replay;
mod statements;
mod stream;
mod value;
mod wake;

use connection::Checkout;
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
    schema: String,
    shared: SharedStatements,
    streams: RwLock<HashMap<StreamId, Arc<StreamState>>>,
    wake: wake::Listener,
}

pub(crate) struct StreamState {
    statements: StreamStatements,
    bound: PartitionBound,
}

impl PostgresBackend {
    /// Uses `pool` for produces, and opens a small pool of its own, lazily, with the same options.
    ///
    /// # Errors
    /// A schema name that is not `[a-z_][a-z0-9_]*`, at most 63 bytes.
    pub fn new(pool: PgPool, schema: &str) -> Result<Self, Error> {
        check_schema(schema)?;
        let options = engine_options(pool.connect_options().as_ref().clone());
        let shared = SharedStatements::fill(Names { schema, stream: 0 });
        let own = |connections| {
            let prepare = shared.connection_prepare.clone();
            checked_after_a_pause(PgPoolOptions::new())
                .after_connect(move |connection, _| {
                    let prepare = sqlx::raw_sql(prepare.clone());
                    Box::pin(async move { prepare.execute(connection).await.map(drop) })
                })
                .max_connections(connections)
                .acquire_timeout(Duration::from_secs(10))
                .idle_timeout(Duration::from_secs(300))
                .connect_lazy_with(options.clone())
        };
        Ok(Self {
            pool,
            engine: own(ENGINE_CONNECTIONS),
            renewals: own(1),
            schema: schema.to_owned(),
            shared,
            streams: RwLock::default(),
            wake: wake::Listener::default(),
        })
    }

    async fn engine(&self, doing: &str) -> Result<Checkout, Error> {
        self.engine.acquire().await.map(Checkout::new).map_err(|err| error::map(doing, err).unsent())
    }

    async fn renewals(&self, doing: &str) -> Result<Checkout, Error> {
        self.renewals.acquire().await.map(Checkout::new).map_err(|err| error::map(doing, err).unsent())
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
    async fn lane_read(&self, params: &LaneReadParams) -> Result<Vec<StoredMessage>, Error> {
        lane::read(self, params).await
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
/// would double the exchanges.
fn checked_after_a_pause(options: PgPoolOptions) -> PgPoolOptions {
    use sqlx::Connection;
    const PAUSE: Duration = Duration::from_millis(500);
    options.test_before_acquire(false).before_acquire(|connection, usage| {
        Box::pin(async move {
            if usage.idle_for >= PAUSE {
                connection.ping().await?;
            }
            Ok(true)
        })
    })
}

/// The pool of a client that has none of its user's.
pub(crate) async fn connect(url: &str) -> Result<PgPool, Error> {
    use std::str::FromStr;
    let options = PgConnectOptions::from_str(url).map_err(|err| {
        Error::new(
            Kind::Unavailable,
            "SQLS-0105",
            "the database url is not one of Postgres - write postgres://user@host/database",
        )
        .with_source(err)
    })?;
    let pool = checked_after_a_pause(PgPoolOptions::new()).connect_with(options);
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
