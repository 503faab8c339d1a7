//! What the tests of clients stand on: an installation with its client on either database, consumers that
//! run beside the test, and streams and groups declared by hand, since the derive lives in another crate.

use std::future::Future;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams_runtime::schema::{RetryPolicy, Route, RoutePart, check_segment};
use sqlstreams_runtime::{
    BoxError, Client, ClientOptions, Consumer, DeadLetter, DeadLetterFilter, Delivery, Error, Group, GroupSummary,
    MessageId, Outcome, Position, Producer, SegmentError, Stream,
};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, PgPool, Pool, Postgres, Row, Sqlite, SqlitePool, Transaction};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::database::{Database, SqliteFile, fresh_database, sqlite_file};
use crate::support::pgbouncer;

/// How long a test waits for something that must come.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at a database that tells nothing by itself.
const LOOK: Duration = Duration::from_millis(20);

/// Makes a test of each listed function on each database, and on Postgres through a pooler.
macro_rules! on_both_databases {
    ($($test:ident)*) => {
        on_both_databases! { #[tokio::test(flavor = "multi_thread", worker_threads = 2)] $($test)* }
    };
    (#[$runtime:meta] $($test:ident)*) => {
        mod postgres {
            $(#[$runtime]
            async fn $test() {
                super::$test::<sqlx::Postgres>().await;
            })*
        }
        mod pooled {
            $(#[$runtime]
            async fn $test() {
                $crate::session::world::through_a_pooler(super::$test::<sqlx::Postgres>()).await;
            })*
        }
        mod sqlite {
            $(#[$runtime]
            async fn $test() {
                super::$test::<sqlx::Sqlite>().await;
            })*
        }
    };
}
pub(crate) use on_both_databases;

/// What the tests ask of a database beside what a client offers.
pub trait Engine: sqlstreams_runtime::Database {
    /// A database of a test's own.
    type Place: Send + Sync;
    /// `postgres` or `sqlite`, for child processes.
    const KIND: &'static str;
    /// What stands before a table's name.
    const TABLES: &'static str;
    /// A statement that keeps every presence from being renewed until its transaction ends.
    const HOLD_PRESENCES: &'static str;

    /// An empty database.
    fn place() -> impl Future<Output = Self::Place> + Send;
    /// Its URL.
    fn url(place: &Self::Place) -> String;
    /// How a client uses it.
    fn options(_url: &str) -> ClientOptions {
        ClientOptions::new()
    }
    /// A small pool on it.
    fn small_pool(url: &str) -> impl Future<Output = Pool<Self>> + Send;
    /// A transaction that may write.
    fn begin(pool: &Pool<Self>) -> impl Future<Output = Transaction<'static, Self>> + Send;
    /// Runs statements.
    fn execute(pool: &Pool<Self>, statements: String) -> impl Future<Output = ()> + Send;
    /// Runs a statement in a transaction.
    fn execute_in(tx: &mut Transaction<'static, Self>, statement: &'static str) -> impl Future<Output = ()> + Send;
    /// The numbers in the first column of a query's answer.
    fn numbers(pool: &Pool<Self>, query: String) -> impl Future<Output = Vec<i64>> + Send;
}

tokio::task_local! {
    /// The test's databases are used through a pooler.
    static POOLED: ();
}

/// Runs a test whose Postgres is behind a pooler that gives its servers out for a transaction.
pub async fn through_a_pooler(test: impl Future<Output = ()>) {
    POOLED.scope((), test).await;
}

/// In a URL: how clients are told, also those of child processes.
const IS_POOLED: &str = "?application_name=pooled";

impl Engine for Postgres {
    type Place = Database;
    const KIND: &'static str = "postgres";
    const TABLES: &'static str = "sqlstreams.";
    const HOLD_PRESENCES: &'static str = "update sqlstreams.presence set process = process";

    async fn place() -> Database {
        fresh_database().await
    }
    fn url(place: &Database) -> String {
        match POOLED.try_with(|()| pgbouncer::shared()) {
            Ok(pooler) => pooler.url(place.url()) + IS_POOLED,
            Err(_) => place.url().to_owned(),
        }
    }
    fn options(url: &str) -> ClientOptions {
        ClientOptions::new().pooled(url.ends_with(IS_POOLED))
    }
    async fn small_pool(url: &str) -> PgPool {
        let options = PgConnectOptions::from_str(url).expect("a URL of Postgres");
        let options = if url.ends_with(IS_POOLED) { options.extra_float_digits(None) } else { options };
        let pool = sqlx::postgres::PgPoolOptions::new().max_connections(4).acquire_timeout(LIMIT);
        pool.connect_with(options).await.expect("the database takes connections")
    }
    async fn begin(pool: &PgPool) -> Transaction<'static, Postgres> {
        pool.begin().await.expect("a transaction can begin")
    }
    async fn execute(pool: &PgPool, statements: String) {
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(pool).await.expect("a test's own statement runs");
    }
    async fn execute_in(tx: &mut Transaction<'static, Postgres>, statement: &'static str) {
        sqlx::raw_sql(statement).execute(&mut **tx).await.expect("a test's own statement runs");
    }
    async fn numbers(pool: &PgPool, query: String) -> Vec<i64> {
        // One exchange, also through a pooler.
        let rows = sqlx::raw_sql(AssertSqlSafe(query)).fetch_all(pool).await.expect("a test's own query answers");
        rows.iter().map(|row| row.try_get(0).expect("the query answers numbers")).collect()
    }
}

impl Engine for Sqlite {
    type Place = SqliteFile;
    const KIND: &'static str = "sqlite";
    const TABLES: &'static str = "sqlstreams_";
    const HOLD_PRESENCES: &'static str = "update sqlstreams_presence set process = process";

    async fn place() -> SqliteFile {
        sqlite_file()
    }
    fn url(place: &SqliteFile) -> String {
        place.url()
    }
    async fn small_pool(url: &str) -> SqlitePool {
        let options: SqliteConnectOptions = url.parse().expect("the URL names a file");
        let pool = SqlitePoolOptions::new().max_connections(4).acquire_timeout(LIMIT);
        pool.connect_with(options.busy_timeout(LIMIT)).await.expect("the file can be opened")
    }
    async fn begin(pool: &SqlitePool) -> Transaction<'static, Sqlite> {
        pool.begin_with("begin immediate").await.expect("a transaction can begin")
    }
    async fn execute(pool: &SqlitePool, statements: String) {
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(pool).await.expect("a test's own statement runs");
    }
    async fn execute_in(tx: &mut Transaction<'static, Sqlite>, statement: &'static str) {
        sqlx::query(statement).execute(&mut **tx).await.expect("a test's own statement runs");
    }
    async fn numbers(pool: &SqlitePool, query: String) -> Vec<i64> {
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_all(pool).await.expect("a test's own query answers")
    }
}

/// A migrated installation with its client, gone when it is dropped.
pub struct World<Db: Engine> {
    pub client: Client<Db>,
    place: Db::Place,
}

impl<Db: Engine> World<Db> {
    /// A fresh one.
    pub async fn new() -> Self {
        let world = Self::unmigrated().await;
        world.client.migrate().await.expect("a fresh installation can be migrated");
        world
    }

    /// A client on an empty database.
    pub async fn unmigrated() -> Self {
        let place = Db::place().await;
        let client = connect(&Db::url(&place)).await;
        Self { client, place }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        Db::url(&self.place)
    }

    /// A client of its own, as another process has it.
    pub async fn another_client(&self) -> Client<Db> {
        connect(&self.url()).await
    }

    /// A producer for `S`.
    pub async fn producer<S: Stream>(&self) -> Producer<S, Db> {
        self.client.producer::<S>().await.expect("a stream can be registered")
    }

    /// Runs statements; `{}` in them stands for what is before a table's name, as in `{}message_log_1`.
    pub async fn execute(&self, statements: &str) {
        Db::execute(self.client.pool(), statements.replace("{}", Db::TABLES)).await;
    }

    /// The numbers that a query answers; `{}` as above.
    pub async fn numbers(&self, query: &str) -> Vec<i64> {
        Db::numbers(self.client.pool(), query.replace("{}", Db::TABLES)).await
    }

    /// The one number that a query answers.
    pub async fn number(&self, query: &str) -> i64 {
        *self.numbers(query).await.first().expect("the query answers a row")
    }

    /// Where the group stands.
    pub async fn position<G: Group>(&self) -> Position {
        self.client.position::<G>().await.expect("a group's position can be read")
    }

    /// The group's dead letters, by id.
    pub async fn letters<G: Group>(&self) -> Vec<DeadLetter> {
        let letters = self.client.dead_letters::<G>().await.expect("a group can be registered");
        let listed = letters.list(&DeadLetterFilter::all(), MessageId(0), 1000).await;
        listed.expect("dead letters can be listed")
    }

    /// Waits until the group has settled everything that was produced.
    pub async fn settled<G: Group>(&self) -> Position {
        self.reaches::<G>("settled everything", |position| position.settled == position.head).await
    }

    /// Waits until the group stands somewhere.
    pub async fn reaches<G: Group>(&self, what: &str, is_there: impl Fn(&Position) -> bool) -> Position {
        let mut last = Position::default();
        let mut ticks = tokio::time::interval(LOOK);
        let looking = async {
            loop {
                ticks.tick().await;
                last = self.position::<G>().await;
                if is_there(&last) {
                    break;
                }
            }
        };
        if tokio::time::timeout(LIMIT, looking).await.is_err() {
            panic!("group {} never has {what}: {last:?}", G::NAME);
        }
        last
    }
}

/// A client with a small pool.
pub async fn connect<Db: Engine>(url: &str) -> Client<Db> {
    Client::with_options(Db::small_pool(url).await, Db::options(url)).expect("a client can be made on a pool")
}

/// What `future` gives, which must come.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(come) => come,
        Err(_) => panic!("{what} did not come in {LIMIT:?}"),
    }
}

/// Waits until `is_so` finds it so, for what nothing tells.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut ticks = tokio::time::interval(LOOK);
    let looking = async {
        while !is_so().await {
            ticks.tick().await;
        }
    };
    soon(what, looking).await;
}

/// A consumer that runs beside the test.
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<Vec<GroupSummary>, Error>>,
}

/// Starts a consumer.
pub fn start(consumer: Consumer) -> Running {
    let stop = CancellationToken::new();
    let task = tokio::spawn(consumer.run_until(stop.clone().cancelled_owned()));
    Running { stop, task }
}

impl Running {
    /// Asks it to stop, and goes on.
    pub fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    /// Whether it has stopped.
    pub fn has_stopped(&self) -> bool {
        self.task.is_finished()
    }

    /// Drops it in the middle of whatever it does.
    pub async fn drop_now(self) {
        self.task.abort();
        let ended = soon("the consumer's end", self.task).await;
        assert!(ended.is_err_and(|err| err.is_cancelled()), "the consumer had ended");
    }

    /// Stops it; its groups' summaries.
    pub async fn stop(self) -> Vec<GroupSummary> {
        self.stop.cancel();
        self.end().await.expect("a consumer stops without an error")
    }

    /// Waits for its own end.
    pub async fn end(self) -> Result<Vec<GroupSummary>, Error> {
        soon("the consumer's end", self.task).await.expect("a consumer does not panic")
    }
}

/// Tells its number when it is dropped, as at the end of a future that holds it.
pub struct Told(pub u64, pub UnboundedSender<u64>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

/// One call of a handler.
pub type Call = (Order, Delivery);

/// Adds `G` to a consumer, with a handler that tells of each call and is done.
pub fn telling<G: Group<Stream = Order>>(consumer: Consumer, calls: &UnboundedSender<Call>) -> Consumer {
    let calls = calls.clone();
    consumer.group_fn::<G, _, _>(move |order, delivery| {
        // The test may have heard enough.
        let _ = calls.send((order, delivery));
        async { Ok(Outcome::Done) }
    })
}

/// Adds `G` to a consumer, with a handler that asks `decide` after it told of the call.
pub fn deciding<G: Group<Stream = Order>>(
    consumer: Consumer,
    decide: impl Fn(&Order, &Delivery) -> Result<Outcome, BoxError> + Send + Sync + 'static,
) -> (Consumer, UnboundedReceiver<Call>) {
    let (sender, calls) = unbounded_channel();
    let consumer = consumer.group_fn::<G, _, _>(move |order: Order, delivery: Delivery| {
        let outcome = decide(&order, &delivery);
        let _ = sender.send((order, delivery));
        async move { outcome }
    });
    (consumer, calls)
}

/// The next `count` calls.
pub async fn take(calls: &mut UnboundedReceiver<Call>, count: usize) -> Vec<Call> {
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count {
        taken.push(soon("a handler's call", calls.recv()).await.expect("the consumer runs"));
    }
    taken
}

/// The orders' numbers, in order.
pub fn numbers(calls: &[Call]) -> Vec<u64> {
    let mut numbers: Vec<u64> = calls.iter().map(|(order, _)| order.number).collect();
    numbers.sort_unstable();
    numbers
}

/// The payload of most tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Order {
    pub number: u64,
    pub region: String,
    pub kind: String,
    pub note: String,
}

impl Order {
    /// One of the eu that was created.
    pub fn new(number: u64) -> Self {
        Self::of(number, "eu", "created")
    }

    /// One with a routing key.
    pub fn of(number: u64, region: &str, kind: &str) -> Self {
        Self { number, region: region.to_owned(), kind: kind.to_owned(), note: format!("order {number}") }
    }

    /// Orders with these numbers.
    pub fn many(numbers: std::ops::Range<u64>) -> Vec<Self> {
        numbers.map(Self::new).collect()
    }
}

impl Stream for Order {
    const NAME: &'static str = "orders";
    const VERSION: u32 = 1;
    const ROUTE: Route = Route {
        template: "orders.{region}.{kind}",
        segments: &[
            RoutePart::Literal("orders"),
            RoutePart::Field { name: "region", values: None },
            RoutePart::Field { name: "kind", values: None },
        ],
    };
    const KEY: Option<&'static str> = Some("number");

    fn routing_key(&self) -> Result<Option<String>, SegmentError> {
        for (field, value) in [("region", &self.region), ("kind", &self.kind)] {
            check_segment(value).map_err(|problem| SegmentError::new(Self::NAME, field, problem))?;
        }
        Ok(Some(format!("orders.{}.{}", self.region, self.kind)))
    }

    fn message_key(&self) -> Option<String> {
        Some(self.number.to_string())
    }
}

/// A stream without route and key for a payload type.
macro_rules! plain_stream {
    ($payload:ty, $name:literal, $version:literal) => {
        impl sqlstreams_runtime::Stream for $payload {
            const NAME: &'static str = $name;
            const VERSION: u32 = $version;
            const ROUTE: sqlstreams_runtime::schema::Route = sqlstreams_runtime::schema::Route::NONE;
            const KEY: Option<&'static str> = None;
            fn routing_key(&self) -> Result<Option<String>, sqlstreams_runtime::SegmentError> {
                Ok(None)
            }
            fn message_key(&self) -> Option<String> {
                None
            }
        }
    };
}
pub(crate) use plain_stream;

/// A group; what is not said is as in `GroupConfig::DEFAULT`.
macro_rules! group {
    ($vis:vis $group:ident, $stream:ty, $name:literal $(, $field:ident: $value:expr)* $(,)?) => {
        $vis struct $group;
        impl sqlstreams_runtime::Group for $group {
            type Stream = $stream;
            const NAME: &'static str = $name;
            const CONFIG: sqlstreams_runtime::schema::GroupConfig =
                sqlstreams_runtime::schema::GroupConfig { $($field: $value,)* ..sqlstreams_runtime::schema::GroupConfig::DEFAULT };
        }
    };
}
pub(crate) use group;

/// Retries that keep no test waiting.
pub const fn quick(retries: u32) -> RetryPolicy {
    RetryPolicy {
        retries,
        first_delay: Duration::from_millis(1),
        max_delay: Duration::from_millis(4),
        factor: 2,
        jitter_percent: 0,
    }
}

// Its handlers' time is no reason for anything that comes within a test's patience.
group!(pub All, Order, "all", retry: quick(3), timeout: LIMIT.saturating_mul(10));
