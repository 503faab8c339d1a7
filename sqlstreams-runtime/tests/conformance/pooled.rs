//! Connection poolers between a client and Postgres: a client that doesn't know of one is refused, and one that
//! does leaves nothing behind that a pooler would have to keep. What clients promise holds through a pooler as well:
//! the tests of `session` and `process` run through one, in their modules `pooled`.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::backend::Backend;
use sqlstreams_runtime::backend::postgres::PostgresBackend;
use sqlstreams_runtime::error::Kind;
use sqlstreams_runtime::{Client, ClientOptions, Error, Recovery};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, Executor, PgConnection, PgPool, Postgres, Row, Sqlite};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::fence::declared::{Note, NoteReaders};
use crate::harness::{PATIENCE, SCHEMA, claim_params, message, pass_the_head, presence_params, read_params};
use crate::support::database::{Database, fresh_database, server, sqlite_file};
use crate::support::pgbouncer::{self, Pooler};

mod exchanges;
mod marks;
mod wire;

/// What an operator sets who met the complaint about a startup parameter and believed that to be all.
const IGNORING: &str = "ignore_startup_parameters = extra_float_digits,options";

fn pooled() -> ClientOptions {
    ClientOptions::new().pooled(true)
}

/// A pool as a user makes it for a pooler.
async fn pool(url: &str) -> PgPool {
    let options = PgConnectOptions::from_str(url).expect("a URL of Postgres").extra_float_digits(None);
    let pool = PgPoolOptions::new().max_connections(8).acquire_timeout(PATIENCE);
    pool.connect_with(options).await.expect("the pooler takes connections")
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, code: &str, way_out: &str) {
    let err = result.err().expect("the client is refused");
    assert_eq!((err.code(), err.kind(), err.recovery()), (code, Kind::Configuration, Recovery::Permanent), "{err}");
    assert!(err.to_string().contains(way_out), "{err}");
    assert!(err.outcome_known());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direct_client_is_refused_by_what_the_pooler_does_not_take() {
    let database = fresh_database().await;
    let url = pgbouncer::shared().url(database.url());
    refused(Client::<Postgres>::connect(&url).await, "SQLS-0131", "pooled(true)");
    // A pool that gets through, where the engine's own connections do not.
    let client = Client::<Postgres>::new(pool(&url).await).expect("a client on a pool");
    refused(client.migrate().await, "SQLS-0131", "pooled(true)");
    refused(client.producer::<Note>().await, "SQLS-0131", "pooled(true)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direct_client_is_refused_behind_a_pooler_that_takes_everything() {
    let database = fresh_database().await;
    for mode in ["transaction", "session", "statement"] {
        let pooler = Pooler::start(server(), &format!("pool_mode = {mode}\n{IGNORING}"));
        let url = pooler.url(database.url());
        for _ in 0..3 {
            refused(Client::<Postgres>::connect(&url).await, "SQLS-0130", "pooled(true)");
        }
        let client = Client::<Postgres>::new(pool(&url).await).expect("a client on a pool");
        refused(client.migrate().await, "SQLS-0130", "pooled(true)");
        refused(client.producer::<Note>().await, "SQLS-0130", "pooled(true)");
        refused(client.position::<NoteReaders>().await, "SQLS-0130", "pooled(true)");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooled_client_is_refused_behind_a_pooler_by_statement() {
    let database = fresh_database().await;
    let pooler = Pooler::start(server(), "pool_mode = statement");
    let url = pooler.url(database.url());
    refused(Client::<Postgres>::connect_with(&url, pooled()).await, "SQLS-0132", "by transaction");
    let client = Client::<Postgres>::with_options(pool(&url).await, pooled()).expect("a client on a pool");
    refused(client.migrate().await, "SQLS-0132", "by transaction");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooled_client_works_by_transaction_by_session_and_without_a_pooler() {
    for mode in ["transaction", "session"] {
        let pooler = Pooler::start(server(), &format!("pool_mode = {mode}"));
        let database = fresh_database().await;
        works(&pooler.url(database.url())).await;
    }
    works(fresh_database().await.url()).await;
}

async fn works(url: &str) {
    let client = Client::<Postgres>::connect_with(url, pooled()).await.expect("the client connects");
    client.migrate().await.expect("a fresh installation can be migrated");
    let notes = client.producer::<Note>().await.expect("a stream can be registered");
    notes.produce(&Note { n: 1 }).await.expect("a message can be produced");
    client.close().await;
}

#[tokio::test]
async fn a_pooler_before_a_file_is_a_mistake() {
    let file = sqlite_file();
    refused(Client::<Sqlite>::connect_with(&file.url(), pooled()).await, "SQLS-0133", "leave `pooled` out");
    let pool = sqlx::SqlitePool::connect(&file.url()).await.expect("the file can be opened");
    refused(Client::<Sqlite>::with_options(pool, pooled()), "SQLS-0133", "leave `pooled` out");
}

/// An installation behind the shared pooler.
async fn installation() -> (Client<Postgres>, Database) {
    let database = fresh_database().await;
    let client = Client::<Postgres>::connect_with(&pgbouncer::shared().url(database.url()), pooled()).await;
    let client = client.expect("the client connects");
    client.migrate().await.expect("a fresh installation can be migrated");
    (client, database)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_setting_of_a_client_stays_on_a_server() {
    let (client, database) = installation().await;
    let notes = client.producer::<Note>().await.expect("a stream can be registered");
    notes.produce(&Note { n: 1 }).await.expect("a message can be produced");
    let mut fresh = PgConnection::connect(database.url()).await.expect("the server takes connections");
    let names = "'lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout', 'enable_seqscan', \
        'enable_bitmapscan', 'jit', 'synchronous_commit', 'client_min_messages', 'default_transaction_isolation'";
    let settings = format!(
        "select string_agg(name || '=' || setting, ' ' order by name) from pg_settings where name in ({names})"
    );
    let settings = || sqlx::raw_sql(sqlx::AssertSqlSafe(settings.clone()));
    let expected: String = settings().fetch_one(&mut fresh).await.expect("settings").get(0);
    // Each server of the pooler, since all are held at once.
    let pool = client.pool();
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut tx = pool.begin().await.expect("a transaction can begin");
        let found: String = settings().fetch_one(&mut *tx).await.expect("settings").get(0);
        assert_eq!(found, expected);
        let statements = tx.fetch_one(sqlx::raw_sql("select count(*) from pg_prepared_statements")).await;
        assert_eq!(statements.expect("a count").get::<i64, _>(0), 0);
        held.push(tx);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_needs_partitions_makes_them_through_a_pooler() {
    let (client, _database) = installation().await;
    let notes = client.producer_with::<Note>(2).await.expect("a stream can be registered");
    let batch: Vec<Note> = (0..40).map(|n| Note { n }).collect();
    let ids = notes.produce_batch(&batch).await.expect("a batch can be produced");
    assert_eq!(ids.len(), 40);
    assert!(ids.is_sorted());
}

/// A commit whose database is asynchronous by default is made durable by the transaction's own setting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_durable_also_where_the_database_makes_none() {
    let (client, database) = installation().await;
    let mut beside = PgConnection::connect(database.url()).await.expect("the server takes connections");
    let script = format!(
        "alter database {} set synchronous_commit = off; create table seen (setting text); \
         create function see() returns trigger language plpgsql as $$ begin \
         insert into seen values (current_setting('synchronous_commit')); return new; end $$; \
         create trigger see after insert on sqlstreams.presence for each row execute function see()",
        database.name()
    );
    beside.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(script))).await.expect("the test's own statements run");
    client.close().await;
    // A pooler of its own has only servers that were started with the new default.
    let pooler = Pooler::start(server(), "pool_mode = transaction");
    let backend = PostgresBackend::pooled(pool(&pooler.url(database.url())).await, SCHEMA).expect("a schema's name");
    backend.presence_enter(&presence_params(Duration::from_secs(60))).await.expect("a process can be present");
    let seen = beside.fetch_all(sqlx::raw_sql("select setting from seen")).await.expect("what was seen");
    assert_eq!(seen.iter().map(|row| row.get::<&str, _>(0)).collect::<Vec<_>>(), ["on"]);
}

/// Many tasks over few servers: an answer of somebody else's would show as a wrong number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_claims_and_produces_over_few_servers_gives_each_its_own_answers() {
    const TASKS: usize = 12;
    const ROUNDS: usize = 20;
    let database = fresh_database().await;
    let url = pgbouncer::shared().url(database.url());
    let backend = Arc::new(PostgresBackend::pooled(pool(&url).await, SCHEMA).expect("a schema's name"));
    backend.migration_apply().await.expect("a fresh installation can be migrated");
    let stream = backend.stream_register(&crate::harness::stream_params("orders")).await.expect("a stream").id;
    let group = backend.group_register(&crate::harness::group_params(stream, "all")).await.expect("a group").id;
    let barrier = Arc::new(Barrier::new(TASKS));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (backend, barrier) = (backend.clone(), barrier.clone());
        tasks.spawn(async move {
            let presence = presence_params(crate::harness::LONG);
            barrier.wait().await;
            backend.presence_enter(&presence).await.expect("a process can be present");
            let mut taken = Vec::new();
            for round in 0..ROUNDS {
                let number = task * ROUNDS + round;
                let ids = backend.message_produce(stream, 1, 0, &[message(number)]).await.expect("it is produced");
                let stored =
                    backend.message_read(&read_params(stream, ids[0].0 - 1, ids[0].0)).await.expect("it reads");
                let payload = stored[0].payload.as_deref().expect("the version is read");
                assert_eq!(payload, message(number).payload.as_bytes());
                let params = claim_params(stream, group, presence.id, 3);
                let row = backend.claim_take(&params).await.expect("a claim answers");
                if row.high > row.low {
                    let lease = backend.lease_find(stream, params.token).await.expect("a lease can be looked for");
                    let lease = lease.expect("the lease was committed with the claim");
                    assert_eq!((lease.low, lease.high), (row.low, row.high));
                    taken.extend(row.low + 1..=row.high);
                } else {
                    pass_the_head(&*backend, stream, group, &row).await;
                }
            }
            taken
        });
    }
    let mut taken = tasks.join_all().await.concat();
    taken.sort_unstable();
    assert_eq!(taken, (1..=taken.len() as i64).collect::<Vec<_>>(), "each id was claimed once, in order");
    assert!(taken.len() > TASKS * ROUNDS / 2, "the claims took {} messages", taken.len());
}
