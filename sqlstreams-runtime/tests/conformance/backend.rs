//! The port as a whole: `close`, the statements, and what the database server is told.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::Kind;
use sqlstreams_runtime::backend::Backend;
use sqlstreams_runtime::backend::postgres::PostgresBackend;
use sqlstreams_runtime::backend::sqlite::SqliteBackend;
use sqlx::Executor;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::time::timeout;

use crate::harness::{
    self, Installation, LONG, PATIENCE, SCHEMA, claim_params, code, on_both, presence_params, retry, settle_params,
    trouble,
};

mod alike;
mod durability;

on_both! {
    close_refuses_what_comes_later,
    close_lets_a_waiting_task_go,
    close_leaves_other_processes_at_work,
    close_keeps_what_was_produced,
}

async fn close_refuses_what_comes_later(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    let backend = &installation.backend;
    timeout(PATIENCE, backend.close()).await.expect("closing ends");
    timeout(PATIENCE, backend.close()).await.expect("closing again ends");
    let refused = backend.claim_take(&claim_params(stream, group, presence, 5)).await.expect_err("it is closed");
    assert_eq!((refused.code(), refused.kind()), ("SQLS-0103", Kind::Shutdown));
    assert_eq!(code(backend.presence_renew(presence, LONG).await), "SQLS-0103");
    assert_eq!(code(backend.cursor_position(stream, group).await), "SQLS-0103");
    assert_eq!(code(backend.migration_apply().await), "SQLS-0103");
    let heard = timeout(PATIENCE, backend.wake_wait()).await.expect("a closed backend waits for nothing");
    assert_eq!(code(heard), "SQLS-0103");
}

async fn close_lets_a_waiting_task_go(installation: &Installation) {
    installation.backend.wake_wait().await.expect("listening begins");
    let backend: Arc<dyn Backend> = installation.backend.clone();
    let mut waiting = tokio::spawn(async move { backend.wake_wait().await });
    assert!(timeout(Duration::from_millis(100), &mut waiting).await.is_err(), "there is no news");
    timeout(PATIENCE, installation.backend.close()).await.expect("closing waits for no news");
    let ended = timeout(PATIENCE, waiting).await.expect("the task ends").expect("no panic");
    assert!(ended.is_err() || ended.is_ok_and(|news| news.is_empty()));
}

async fn close_leaves_other_processes_at_work(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let other = installation.another().await;
    installation.produce(stream, 3).await;
    installation.backend.close().await;
    let presence = presence_params(LONG);
    other.presence_enter(&presence).await.expect("a presence");
    let (_, row) = harness::claim_on(&*other, stream, group, presence.id, 5).await;
    assert_eq!((row.low, row.high), (0, 3));
}

async fn close_keeps_what_was_produced(installation: &Installation) {
    let stream = installation.stream("events").await;
    let produced = installation.produce(stream, 100).await;
    installation.backend.close().await;
    let other = installation.another().await;
    let stored = other.message_read(&harness::read_params(stream, 0, i64::MAX)).await.expect("a range");
    assert_eq!(harness::ids(&stored), produced.iter().map(|id| id.0).collect::<Vec<_>>());
}

/// The user's pool is the user's: only the engine's connections go.
#[tokio::test]
async fn close_ends_the_engines_connections_and_leaves_the_pool() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    installation.backend.wake_wait().await.expect("listening begins");
    let engine =
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'sqlstreams'";
    assert!(installation.number(engine).await > 0);
    installation.backend.close().await;
    let deadline = std::time::Instant::now() + PATIENCE;
    // A server process outlives its connection for a moment.
    while installation.number(engine).await > 0 {
        assert!(std::time::Instant::now() < deadline, "a connection of the engine stayed open");
    }
    assert!(!installation.pool().is_closed());
    assert_eq!(installation.count(&installation.table_of("message_log", stream)).await, 0);
}

#[tokio::test]
async fn every_statement_can_be_prepared_on_postgres() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let statements = installation.postgres().statements(stream);
    assert!(statements.len() > 30, "the statements of all files");
    let mut connection = installation.pool().acquire().await.expect("a connection");
    for (name, statement) in statements {
        let prepared = (&mut *connection).prepare(statement).await;
        prepared.unwrap_or_else(|err| panic!("{name} can't be prepared: {err}"));
    }
}

#[tokio::test]
async fn every_statement_can_be_prepared_on_sqlite() {
    let installation = harness::sqlite().await;
    let stream = installation.stream("events").await;
    let statements = installation.sqlite().statements(stream);
    assert!(statements.len() > 40, "the statements of all files");
    let mut connection = installation.sqlite_connection().await;
    for (name, statement) in statements {
        let prepared = (&mut connection).prepare(statement).await;
        prepared.unwrap_or_else(|err| panic!("{name} can't be prepared: {err}"));
    }
}

/// A schema's name that must be quoted is one, too.
#[tokio::test]
async fn every_statement_can_be_prepared_under_a_reserved_word() {
    let installation = harness::unmigrated_postgres().await;
    let backend = PostgresBackend::new(installation.pool().clone(), "user").expect("a schema's name");
    backend.migration_apply().await.expect("an installation");
    let stream = backend.stream_register(&harness::stream_params("events")).await.expect("a stream").id;
    let mut connection = installation.pool().acquire().await.expect("a connection");
    for (name, statement) in backend.statements(stream) {
        let prepared = (&mut *connection).prepare(statement).await;
        prepared.unwrap_or_else(|err| panic!("{name} can't be prepared: {err}"));
    }
}

/// Whoever looks at the server's activity sees whose statement runs, and which.
#[tokio::test]
async fn the_owner_of_each_statement_reaches_the_server() {
    let installation = harness::postgres().await;
    let options = sqlx::postgres::PgPoolOptions::new().max_connections(1);
    let pool = options.connect(installation.database().url()).await.expect("a pool of one");
    let backend = PostgresBackend::new(pool.clone(), SCHEMA).expect("a backend");
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    backend.message_produce(stream, 1, 0, &[harness::message(0)]).await.expect("a message");
    let (token, _) = harness::claim_on(&backend, stream, group, presence, 5).await;
    let mut params = settle_params(stream, token);
    params.exceptions.push(trouble(1, retry(LONG)));
    assert!(backend.lease_settle(&params).await.expect("a settlement"));

    let prepared: Vec<String> =
        sqlx::query_scalar("select statement from pg_prepared_statements").fetch_all(&pool).await.expect("an answer");
    let produce = prepared.iter().find(|text| text.contains("message_log_"));
    let produce = produce.expect("the insert is prepared on the user's connection");
    assert!(produce.starts_with("-- sqlstreams: message.produce\n"), "{produce}");

    let engine = "where datname = current_database() and application_name = 'sqlstreams'";
    let running = installation.texts(&format!("select query from pg_stat_activity {engine}")).await;
    assert!(!running.is_empty());
    let is_control = |text: &str| ["BEGIN", "COMMIT", "ROLLBACK"].contains(&text);
    assert!(running.iter().all(|text| text.starts_with("-- sqlstreams: ") || is_control(text)), "{running:?}");
    assert!(running.iter().any(|text| text.starts_with("-- sqlstreams: lease.settle\n")), "{running:?}");
}

#[tokio::test]
async fn a_name_that_would_have_to_be_quoted_is_refused() {
    let installation = harness::unmigrated_postgres().await;
    let file = harness::unmigrated_sqlite();
    let long = "a".repeat(64);
    for name in ["", "A", "1a", "a-b", "a.b", "a\"b", "a b", "é", &long] {
        let refused = PostgresBackend::new(installation.pool().clone(), name).map(drop);
        assert_eq!(code(refused), "SQLS-0301", "{name:?}");
        let options = SqliteConnectOptions::new().filename(file.file().path());
        assert_eq!(code(SqliteBackend::open(options, name).map(drop)), "SQLS-0301", "{name:?}");
    }
    for name in ["a", "_", "a1_", "user", &long[1..]] {
        PostgresBackend::new(installation.pool().clone(), name).expect("a schema's name");
        let options = SqliteConnectOptions::new().filename(file.file().path());
        SqliteBackend::open(options, name).expect("a prefix");
    }
}

/// What the engine's statements rely on, whatever the database's defaults say.
#[tokio::test]
async fn defaults_of_the_database_do_not_change_the_engine() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    installation.produce(stream, 3).await;
    let settings = [
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = off",
        "lock_timeout = '1ms'",
        "statement_timeout = '1ms'",
        "search_path = ''",
        "standard_conforming_strings = off",
        "bytea_output = 'escape'",
        "timezone = 'Asia/Kathmandu'",
        "datestyle = 'German'",
        "intervalstyle = 'iso_8601'",
        "extra_float_digits = 0",
    ];
    let name = installation.database().name();
    let statements = settings.map(|setting| format!("alter database {name} set {setting}"));
    installation.execute(&statements.join(";")).await;
    let backend = installation.another().await;
    backend.stream_register(&harness::stream_params("others")).await.expect("a stream");
    let group = backend.group_register(&harness::group_params(stream, "readers")).await.expect("a group").id;
    let presence = presence_params(LONG);
    backend.presence_enter(&presence).await.expect("a presence");
    let (token, row) = harness::claim_on(&*backend, stream, group, presence.id, 2).await;
    assert_eq!((row.low, row.high), (0, 2));
    let mut params = settle_params(stream, token);
    params.exceptions.push(trouble(1, retry(LONG)));
    assert!(backend.lease_settle(&params).await.expect("a settlement"));
    let due = backend.exception_due(stream, group).await.expect("an answer").expect("a message waits");
    assert!(due <= LONG && due > LONG / 2, "{due:?}");
}
