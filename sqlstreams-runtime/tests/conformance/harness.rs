//! What the conformance tests stand on: an installation of each backend, and the steps that many tests share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlstreams_runtime::backend::postgres::PostgresBackend;
use sqlstreams_runtime::backend::sqlite::SqliteBackend;
use sqlstreams_runtime::backend::{
    Backend, ClaimParams, ClaimRow, DeadLetterFilter, ExceptionNext, ExceptionParams, GroupParams, LetterParams,
    PresenceParams, ProduceWithParams, ProducedRow, PromoteParams, PromoteRow, ReadParams, SettleParams, StartParams,
    StreamParams,
};
use sqlstreams_runtime::identity::{DelayedId, Digest, GroupId, LeaseToken, MessageId, PresenceId, StreamId};
use sqlstreams_runtime::message::{Deliver, NewMessage, ProduceItem, StoredMessage};
use sqlstreams_runtime::schema::DeliveryLog;
use sqlstreams_runtime::{Error, GroupName, StreamName, Timestamp};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, PgPool, SqliteConnection};

use crate::support::cluster::Cluster;
use crate::support::database::{Database, SqliteFile, fresh_database, fresh_database_on, sqlite_file};

/// How long a test waits for something that must come.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a presence lasts that must not expire during a test.
pub const LONG: Duration = Duration::from_secs(3600);
/// How long a test's idempotency keys are kept.
pub const DAY: Duration = Duration::from_secs(86_400);
/// The schema of a Postgres installation.
pub const SCHEMA: &str = "sqlstreams";
/// The beginning of a SQLite installation's table names.
pub const PREFIX: &str = "sqlstreams_";

/// Makes a test of each listed function on each backend. A function takes a fresh, migrated `&Installation`.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(&$crate::harness::postgres().await).await;
            })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(&$crate::harness::sqlite().await).await;
            })*
        }
    };
}
pub(crate) use on_both;

/// An installation of a test's own, gone when it is dropped.
pub struct Installation {
    /// The engine's port.
    pub backend: Arc<dyn Backend>,
    postgres: Option<(PgPool, Arc<PostgresBackend>, Database)>,
    sqlite: Option<(Arc<SqliteBackend>, SqliteFile)>,
}

/// A fresh database on the shared server, migrated.
pub async fn postgres() -> Installation {
    migrated(unmigrated_postgres().await).await
}

/// A fresh database on a server of the test's own, migrated.
pub async fn postgres_on(cluster: &Cluster) -> Installation {
    migrated(postgres_in(fresh_database_on(&cluster.url("postgres")).await).await).await
}

/// A fresh file, migrated.
pub async fn sqlite() -> Installation {
    migrated(unmigrated_sqlite()).await
}

/// A fresh database on the shared server, empty.
pub async fn unmigrated_postgres() -> Installation {
    postgres_in(fresh_database().await).await
}

async fn postgres_in(database: Database) -> Installation {
    let pool = pool(database.url()).await;
    let backend = Arc::new(PostgresBackend::new(pool.clone(), SCHEMA).expect("the schema's name is usable"));
    Installation { backend: backend.clone(), postgres: Some((pool, backend, database)), sqlite: None }
}

/// A fresh place for a file; nothing is there yet.
pub fn unmigrated_sqlite() -> Installation {
    let file = sqlite_file();
    let backend = Arc::new(open(&file));
    Installation { backend: backend.clone(), postgres: None, sqlite: Some((backend, file)) }
}

async fn migrated(installation: Installation) -> Installation {
    installation.backend.migration_apply().await.expect("a fresh installation can be migrated");
    installation
}

async fn pool(url: &str) -> PgPool {
    let options = sqlx::postgres::PgPoolOptions::new().max_connections(16).acquire_timeout(PATIENCE);
    options.connect(url).await.expect("a fresh database takes connections")
}

fn open(file: &SqliteFile) -> SqliteBackend {
    let options = SqliteConnectOptions::new().filename(file.path()).create_if_missing(true);
    SqliteBackend::open(options, PREFIX).expect("a file can be opened")
}

/// Where the installation lives.
impl Installation {
    /// Whether this one is on Postgres, for rules that only one of the databases has.
    pub fn is_postgres(&self) -> bool {
        self.postgres.is_some()
    }

    /// A pool on the database of a Postgres installation.
    pub fn pool(&self) -> &PgPool {
        &self.postgres.as_ref().expect("the installation is on Postgres").0
    }

    /// The backend of a Postgres installation.
    pub fn postgres(&self) -> &Arc<PostgresBackend> {
        &self.postgres.as_ref().expect("the installation is on Postgres").1
    }

    /// The database of a Postgres installation.
    pub fn database(&self) -> &Database {
        &self.postgres.as_ref().expect("the installation is on Postgres").2
    }

    /// The backend of a SQLite installation.
    pub fn sqlite(&self) -> &Arc<SqliteBackend> {
        &self.sqlite.as_ref().expect("the installation is on SQLite").0
    }

    /// The file of a SQLite installation.
    pub fn file(&self) -> &SqliteFile {
        &self.sqlite.as_ref().expect("the installation is on SQLite").1
    }

    /// A connection to the file of a SQLite installation that waits for locks.
    pub async fn sqlite_connection(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.file().path()).create_if_missing(true);
        options.busy_timeout(PATIENCE).connect().await.expect("the file can be opened")
    }

    /// Another backend on the same installation, as another process has it.
    pub async fn another(&self) -> Arc<dyn Backend> {
        match &self.sqlite {
            Some((_, file)) => Arc::new(open(file)),
            None => {
                let pool = pool(self.database().url()).await;
                Arc::new(PostgresBackend::new(pool, SCHEMA).expect("the schema's name is usable"))
            }
        }
    }

    /// A shared table's name as a statement needs it.
    pub fn table(&self, name: &str) -> String {
        if self.is_postgres() { format!("{SCHEMA}.{name}") } else { format!("{PREFIX}{name}") }
    }

    /// The name of a table of `stream` as a statement needs it.
    pub fn table_of(&self, name: &str, stream: StreamId) -> String {
        self.table(&format!("{name}_{stream}"))
    }

    /// An expression for the database's time, that long ago, as it is stored.
    pub fn ago(&self, age: Duration) -> String {
        let micros = age.as_micros();
        if self.is_postgres() {
            format!("(clock_timestamp() - {micros} * interval '1 microsecond')")
        } else {
            format!("(cast(unixepoch('subsec') * 1000000 as integer) - {micros})")
        }
    }

    /// The database's time in microseconds since 1970.
    pub async fn now(&self) -> i64 {
        if self.is_postgres() {
            self.number("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await
        } else {
            self.number("select cast(unixepoch('subsec') * 1000000 as integer)").await
        }
    }

    /// Runs statements beside the engine.
    pub async fn execute(&self, statements: &str) {
        let statements = sqlx::raw_sql(AssertSqlSafe(statements.to_owned()));
        let result = if self.is_postgres() {
            statements.execute(self.pool()).await.map(drop)
        } else {
            statements.execute(&mut self.sqlite_connection().await).await.map(drop)
        };
        result.expect("a test's own statement runs");
    }

    /// The whole number that a query beside the engine answers.
    pub async fn number(&self, query: &str) -> i64 {
        self.optional_number(query).await.expect("the query answers a number and not null")
    }

    /// The whole number, or null, that a query beside the engine answers.
    pub async fn optional_number(&self, query: &str) -> Option<i64> {
        let query = sqlx::AssertSqlSafe(query.to_owned());
        let answer = if self.is_postgres() {
            sqlx::query_scalar(query).fetch_one(self.pool()).await
        } else {
            sqlx::query_scalar(query).fetch_one(&mut self.sqlite_connection().await).await
        };
        answer.expect("a test's own query answers")
    }

    /// The texts that a query beside the engine answers, one a row.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        let query = sqlx::AssertSqlSafe(query.to_owned());
        let answer = if self.is_postgres() {
            sqlx::query_scalar(query).fetch_all(self.pool()).await
        } else {
            sqlx::query_scalar(query).fetch_all(&mut self.sqlite_connection().await).await
        };
        answer.expect("a test's own query answers")
    }

    /// What the group's messages in trouble count, oldest first: `id status attempts/failures/delays/kills`.
    pub async fn troubles(&self, stream: StreamId, group: GroupId) -> Vec<String> {
        let table = self.table_of("exception_queue", stream);
        let counters = "attempts || '/' || failures || '/' || delays || '/' || kills";
        let query = format!("select message_id || ' ' || status || ' ' || {counters} from {table}");
        self.texts(&format!("{query} where consumer_group_id = {group} order by message_id")).await
    }

    /// The group's delivery log, oldest first: `id #attempt status: error`.
    pub async fn attempts(&self, stream: StreamId, group: GroupId) -> Vec<String> {
        let table = self.table_of("delivery_log", stream);
        let row = "message_id || ' #' || attempt || ' ' || status || coalesce(': ' || error, '')";
        let order = "order by message_id, attempt, id";
        self.texts(&format!("select {row} from {table} where consumer_group_id = {group} {order}")).await
    }

    /// The group's parked ranges, oldest first: `version (low, high]`.
    pub async fn parked(&self, stream: StreamId, group: GroupId) -> Vec<String> {
        let table = self.table_of("parked_range", stream);
        let query = format!("select schema_version || ' (' || low || ', ' || high || ']' from {table}");
        self.texts(&format!("{query} where consumer_group_id = {group} order by low, schema_version")).await
    }

    /// How many rows a table has.
    pub async fn count(&self, table: &str) -> i64 {
        self.number(&format!("select count(*) from {table}")).await
    }
}

/// Steps that many tests share.
impl Installation {
    /// Registers a stream with the test's name for it.
    pub async fn stream(&self, name: &str) -> StreamId {
        self.backend.stream_register(&stream_params(name)).await.expect("a stream can be registered").id
    }

    /// Registers a group that begins before the first message.
    pub async fn group(&self, stream: StreamId, name: &str) -> GroupId {
        self.backend.group_register(&group_params(stream, name)).await.expect("a group can be registered").id
    }

    /// A consuming process that stays alive.
    pub async fn presence(&self) -> PresenceId {
        let params = presence_params(LONG);
        self.backend.presence_enter(&params).await.expect("a process can be present");
        params.id
    }

    /// Lets a presence expire, as it does when its process is gone.
    pub async fn expire(&self, presence: PresenceId) {
        let id = if self.is_postgres() { format!("'{}'", presence.0) } else { format!("x'{}'", presence.0.simple()) };
        let (table, past) = (self.table("presence"), self.ago(Duration::from_secs(1)));
        self.execute(&format!("update {table} set expires_at = {past} where id = {id}")).await;
    }

    /// Appends `count` small messages of version 1.
    pub async fn produce(&self, stream: StreamId, count: usize) -> Vec<MessageId> {
        self.produce_version(stream, 1, count).await
    }

    /// Appends `count` small messages of a version.
    pub async fn produce_version(&self, stream: StreamId, version: u32, count: usize) -> Vec<MessageId> {
        let messages: Vec<NewMessage> = (0..count).map(message).collect();
        self.backend.message_produce(stream, version, 0, &messages).await.expect("small messages can be produced")
    }

    /// Claims until something is taken: other tests' transactions may be open when the first claim looks.
    pub async fn claim(
        &self,
        stream: StreamId,
        group: GroupId,
        presence: PresenceId,
        width: i64,
    ) -> (LeaseToken, ClaimRow) {
        claim_on(&*self.backend, stream, group, presence, width).await
    }

    /// Appends messages with options.
    pub async fn produce_with(&self, stream: StreamId, messages: &[ProduceItem]) -> Vec<ProducedRow> {
        let produced = self.backend.message_produce_with(&produce_with(stream, messages)).await;
        produced.expect("messages with options can be produced")
    }

    /// Puts one message aside.
    pub async fn delay(&self, stream: StreamId, item: ProduceItem) -> DelayedId {
        match self.produce_with(stream, &[item]).await[..] {
            [ProducedRow::Delayed { id, .. }] => id,
            ref other => panic!("the message does not wait: {other:?}"),
        }
    }

    /// Moves what is due that much later into the log.
    pub async fn promote_in(&self, stream: StreamId, later: Duration) -> PromoteRow {
        let now = Some(Timestamp(self.now().await).plus(later));
        let params = PromoteParams { stream, since: None, limit: 500, now };
        self.backend.delayed_promote(&params).await.expect("delayed messages can be promoted")
    }

    /// Reads the range (low, high] whole, of version 1.
    pub async fn read(&self, stream: StreamId, low: i64, high: i64) -> Vec<StoredMessage> {
        self.backend.message_read(&read_params(stream, low, high)).await.expect("a range can be read")
    }
}

/// Claims on any backend until something is taken.
pub async fn claim_on(
    backend: &dyn Backend,
    stream: StreamId,
    group: GroupId,
    presence: PresenceId,
    width: i64,
) -> (LeaseToken, ClaimRow) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let params = claim_params(stream, group, presence, width);
        let row = backend.claim_take(&params).await.expect("a claim answers");
        if row.high > row.low {
            return (params.token, row);
        }
        assert!(!row.missing, "the group has a cursor");
        assert!(Instant::now() < deadline, "nothing could be claimed: {row:?}");
        pass_the_head(backend, stream, group, &row).await;
    }
}

/// After a claim that took nothing: lets the next one pass, whatever else runs on the server.
pub async fn pass_the_head(backend: &dyn Backend, stream: StreamId, group: GroupId, row: &ClaimRow) {
    if row.pending && !row.contended {
        backend.cursor_observe(stream, &[group]).await.expect("open producers can be observed");
    }
    tokio::task::yield_now().await;
}

/// An expression for a time, that many milliseconds after 1970, as it is stored.
pub fn produced_at(installation: &Installation, millis: i64) -> String {
    if installation.is_postgres() {
        format!("(timestamptz 'epoch' + {millis} * interval '1 millisecond')")
    } else {
        format!("({millis} * 1000)")
    }
}

/// A stream's declaration.
pub fn stream_params(name: &str) -> StreamParams {
    StreamParams {
        name: StreamName::new(name).expect("a test's name keeps the rules"),
        message_key: None,
        partition_size: 1_000_000,
        schema_version: 1,
        codec: 0,
        shape: r#"{"id":"integer"}"#.to_owned(),
        shape_hash: [7; 32],
        json_schema: r#"{"type": "object"}"#.to_owned(),
    }
}

/// A group's declaration: parallel, the whole stream, from the beginning.
pub fn group_params(stream: StreamId, name: &str) -> GroupParams {
    GroupParams {
        stream,
        name: GroupName::new(name).expect("a test's name keeps the rules"),
        key_policy: "parallel",
        retry: r#"{"retries":5}"#.to_owned(),
        timeout: Duration::from_secs(30),
        delivery_log: "off",
        bindings: Vec::new(),
        presence: None,
        start: StartParams::Beginning,
    }
}

/// A new consuming process.
pub fn presence_params(ttl: Duration) -> PresenceParams {
    PresenceParams {
        id: PresenceId::mint(),
        build: "0.1.0",
        process: "a test".to_owned(),
        readable: "[]".to_owned(),
        ttl,
    }
}

/// A claim with a new token that settles nothing.
pub fn claim_params(stream: StreamId, group: GroupId, presence: PresenceId, width: i64) -> ClaimParams {
    ClaimParams { stream, group, presence, token: LeaseToken::mint(), width, settled: Vec::new(), durable: false }
}

/// The range (low, high] whole, of version 1.
pub fn read_params(stream: StreamId, low: i64, high: i64) -> ReadParams {
    ReadParams { stream, low, high, versions: vec![1], only_version: None, bindings: Vec::new() }
}

/// The clean end of a lease, to be filled.
pub fn settle_params(stream: StreamId, token: LeaseToken) -> SettleParams {
    SettleParams {
        stream,
        token,
        exceptions: Vec::new(),
        parked: Vec::new(),
        log: DeliveryLog::Off,
        handled: Vec::new(),
        now: None,
    }
}

/// All dead letters of a group.
pub fn letter_params(stream: StreamId, group: GroupId) -> LetterParams {
    let (after, last) = (MessageId(0), MessageId(i64::MAX));
    LetterParams { stream, group, filter: DeadLetterFilter::all(), after, last, limit: 1000 }
}

/// A message in trouble, of version 1.
pub fn trouble(message: i64, next: ExceptionNext) -> ExceptionParams {
    ExceptionParams { message: MessageId(message), schema_version: 1, message_key: None, held_to: None, next }
}

/// Runs again after a failure, that much later.
pub fn retry(after: Duration) -> ExceptionNext {
    ExceptionNext::Retry { after, error: "it failed".to_owned() }
}

/// A small message: `{"n": number}`.
pub fn message(number: usize) -> NewMessage {
    NewMessage { payload: format!(r#"{{"n": {number}}}"#), routing_key: None, message_key: None, headers: None }
}

/// A small message with a message key.
pub fn keyed(key: &str, number: usize) -> NewMessage {
    NewMessage { message_key: Some(key.to_owned()), ..message(number) }
}

/// A small message with a routing key.
pub fn routed(key: &str) -> NewMessage {
    NewMessage { routing_key: Some(key.to_owned()), ..message(0) }
}

/// A small message `{"n": number}` with an idempotency key, or without.
pub fn item(key: Option<u8>, number: usize) -> ProduceItem {
    ProduceItem {
        message: message(number),
        key: key.map(|key| Digest([key; 16])),
        payload_hash: Digest([u8::try_from(number % 256).expect("a byte"); 16]),
        deliver: Deliver::Now,
        keep: DAY,
    }
}

/// A small message that waits.
pub fn delayed(wait: Duration, number: usize) -> ProduceItem {
    ProduceItem { deliver: Deliver::After(wait), ..item(None, number) }
}

/// A call with these messages, of version 1.
pub fn produce_with(stream: StreamId, messages: &[ProduceItem]) -> ProduceWithParams<'_> {
    ProduceWithParams { stream, version: 1, codec: 0, messages, patience: None, now: None }
}

/// The ids of messages, bare.
pub fn ids(messages: &[StoredMessage]) -> Vec<i64> {
    messages.iter().map(|message| message.id.0).collect()
}

/// The error of a call that must fail with this code.
pub fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> &'static str {
    result.expect_err("the call must be refused").code()
}
