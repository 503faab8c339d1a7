//! The installation's version: `migration_apply` and `migration_check`.

use sqlstreams_runtime::{Client, Kind};
use sqlx::{AssertSqlSafe, Postgres, Sqlite};

use crate::harness::{self, Installation, PREFIX, SCHEMA, code, ids, on_both};

on_both! {
    apply_again_changes_nothing,
    apply_keeps_what_is_stored,
    apply_refuses_a_database_that_is_too_new,
    check_refuses_a_database_that_is_too_new,
    check_welcomes_a_database_that_is_merely_newer,
    check_refuses_a_database_that_lacks_a_migration,
}

async fn record(installation: &Installation, version: i32, oldest_build: &str) {
    let history = installation.table("migration_log");
    let columns = "(version, name, oldest_build, applied_by)";
    installation
        .execute(&format!("insert into {history} {columns} values ({version}, 'later', '{oldest_build}', 'x')"))
        .await;
}

/// Everything that an installation consists of, as text. What is left out: object ids, and what streams add.
async fn description(installation: &Installation) -> Vec<String> {
    if !installation.is_postgres() {
        let query = "select type || ' ' || name || ' ' || coalesce(sql, '') from sqlite_master order by 1";
        return installation.texts(query).await;
    }
    let queries = [
        "select format('%s.%s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, \
            a.attidentity, pg_get_expr(d.adbin, d.adrelid)) \
         from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 \
         left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum \
         where c.relnamespace = 'sqlstreams'::regnamespace order by 1",
        "select format('%s %s %s %s', relname, relkind, reloptions, relacl) from pg_class \
         where relnamespace = 'sqlstreams'::regnamespace order by 1",
        "select indexdef from pg_indexes where schemaname = 'sqlstreams' order by 1",
        "select format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint \
         where connamespace = 'sqlstreams'::regnamespace order by 1",
        "select format('%s %s', pg_get_functiondef(oid), proacl) from pg_proc \
         where pronamespace = 'sqlstreams'::regnamespace order by 1",
    ];
    let mut lines = Vec::new();
    for query in queries {
        let found = installation.texts(query).await;
        assert!(!found.is_empty(), "an installation has tables, indexes, constraints and functions");
        lines.extend(found);
    }
    lines
}

async fn history(installation: &Installation) -> Vec<String> {
    let columns = "version || ' ' || name || ' ' || oldest_build || ' ' || applied_by";
    installation.texts(&format!("select {columns} from {} order by version", installation.table("migration_log"))).await
}

async fn apply_again_changes_nothing(installation: &Installation) {
    let (before, applied) = (description(installation).await, history(installation).await);
    installation.backend.migration_check().await.expect("it is migrated");
    for backend in [installation.backend.clone(), installation.another().await] {
        backend.migration_apply().await.expect("nothing is left to do");
        backend.migration_check().await.expect("it is migrated");
    }
    assert_eq!(description(installation).await, before);
    assert_eq!(history(installation).await, applied);
    assert_eq!(applied, [format!("1 installation 0.1.0 {}", env!("CARGO_PKG_VERSION"))]);
}

async fn apply_keeps_what_is_stored(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    installation.produce(stream, 3).await;
    installation.another().await.migration_apply().await.expect("nothing is left to do");
    assert_eq!(ids(&installation.read(stream, 0, 9).await), [1, 2, 3]);
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!(position.head, 3);
}

async fn apply_refuses_a_database_that_is_too_new(installation: &Installation) {
    record(installation, 2, "99.0.0").await;
    let before = description(installation).await;
    let refused = installation.backend.migration_apply().await.expect_err("this build is too old");
    assert_eq!((refused.code(), refused.kind()), ("SQLS-0401", Kind::Migration));
    assert!(refused.to_string().contains("99.0.0"), "{refused}");
    assert_eq!(description(installation).await, before);
    // What was refused holds no lock.
    let refused = installation.another().await.migration_apply().await;
    assert_eq!(code(refused), "SQLS-0401");
}

async fn check_refuses_a_database_that_is_too_new(installation: &Installation) {
    record(installation, 2, "99.0.0").await;
    let refused = installation.backend.migration_check().await.expect_err("this build is too old");
    assert_eq!((refused.code(), refused.kind()), ("SQLS-0401", Kind::Migration));
}

async fn check_welcomes_a_database_that_is_merely_newer(installation: &Installation) {
    for version in 2..=4 {
        record(installation, version, "0.1.0").await;
        installation.backend.migration_check().await.expect("a later build's database");
        installation.backend.migration_apply().await.expect("a later build's database");
    }
    assert_eq!(history(installation).await.len(), 4, "nothing was applied or removed");
    let stream = installation.stream("events").await;
    installation.produce(stream, 1).await;
}

async fn check_refuses_a_database_that_lacks_a_migration(installation: &Installation) {
    installation.execute(&format!("delete from {}", installation.table("migration_log"))).await;
    let refused = installation.backend.migration_check().await.expect_err("a migration is missing");
    assert_eq!((refused.code(), refused.kind()), ("SQLS-0402", Kind::Migration));
    record(installation, 2, "0.1.0").await;
    assert_eq!(code(installation.backend.migration_check().await), "SQLS-0402", "a later one is none instead");
}

/// The same rules for an installation that is not there yet; `make` gives an empty database.
async fn check_refuses_an_empty_database(installation: Installation) {
    let refused = installation.backend.migration_check().await.expect_err("there is nothing");
    assert_eq!((refused.code(), refused.kind()), ("SQLS-0403", Kind::Migration));
    installation.backend.migration_apply().await.expect("an installation");
    installation.backend.migration_check().await.expect("it is migrated");
}

#[tokio::test]
async fn check_refuses_an_empty_database_on_postgres() {
    check_refuses_an_empty_database(harness::unmigrated_postgres().await).await;
}

#[tokio::test]
async fn check_refuses_an_empty_database_on_sqlite() {
    check_refuses_an_empty_database(harness::unmigrated_sqlite()).await;
}

async fn apply_from_eight_processes_at_once(installation: Installation) {
    let mut processes = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let backend = installation.another().await;
        processes.spawn(async move {
            backend.migration_apply().await.expect("all of them succeed");
            backend.migration_check().await.expect("it is migrated");
        });
    }
    processes.join_all().await;
    assert_eq!(history(&installation).await.len(), 1, "it was applied once");
    let stream = installation.stream("events").await;
    installation.produce(stream, 1).await;
}

#[tokio::test]
async fn apply_from_eight_processes_at_once_on_postgres() {
    apply_from_eight_processes_at_once(harness::unmigrated_postgres().await).await;
}

#[tokio::test]
async fn apply_from_eight_processes_at_once_on_sqlite() {
    apply_from_eight_processes_at_once(harness::unmigrated_sqlite()).await;
}

/// A table of the same name is in the way of the last statements.
async fn apply_that_fails_leaves_nothing(installation: Installation) {
    let table = installation.table("schedule_cursor");
    let schema = if installation.is_postgres() { format!("create schema {SCHEMA};") } else { String::new() };
    installation.execute(&format!("{schema} create table {table} (a integer)")).await;
    let before = installation.optional_number(&count_tables(&installation)).await;
    assert_eq!(code(installation.backend.migration_apply().await), "SQLS-0198");
    assert_eq!(installation.optional_number(&count_tables(&installation)).await, before);
    assert_eq!(code(installation.backend.migration_check().await), "SQLS-0403");
    installation.execute(&format!("drop table {table}")).await;
    installation.backend.migration_apply().await.expect("nothing is in the way");
    installation.backend.migration_check().await.expect("it is migrated");
}

fn count_tables(installation: &Installation) -> String {
    if installation.is_postgres() {
        format!("select count(*) from pg_class where relnamespace = '{SCHEMA}'::regnamespace")
    } else {
        "select count(*) from sqlite_master".to_owned()
    }
}

#[tokio::test]
async fn apply_that_fails_leaves_nothing_on_postgres() {
    apply_that_fails_leaves_nothing(harness::unmigrated_postgres().await).await;
}

#[tokio::test]
async fn apply_that_fails_leaves_nothing_on_sqlite() {
    apply_that_fails_leaves_nothing(harness::unmigrated_sqlite()).await;
}

/// What a client prints, run by hand on an empty database.
async fn printed_migrations_have_the_same_effect(by_hand: Installation, applied: Installation, printed: Vec<String>) {
    assert!(!printed.is_empty());
    for script in printed {
        by_hand.execute(&script).await;
    }
    by_hand.backend.migration_check().await.expect("the installation is complete");
    assert_eq!(description(&by_hand).await, description(&applied).await);
    assert_eq!(history(&by_hand).await, history(&applied).await);
    by_hand.backend.migration_apply().await.expect("nothing is left to do");
    let stream = by_hand.stream("events").await;
    let group = by_hand.group(stream, "readers").await;
    by_hand.produce(stream, 2).await;
    let presence = by_hand.presence().await;
    assert_eq!(by_hand.claim(stream, group, presence, 5).await.1.high, 2);
}

#[tokio::test]
async fn printed_migrations_have_the_same_effect_on_postgres() {
    let (by_hand, applied) = (harness::unmigrated_postgres().await, harness::postgres().await);
    let client = Client::<Postgres>::with_namespace(by_hand.pool().clone(), SCHEMA).expect("a client");
    let printed = client.migrations().into_iter().map(|(_, script)| script).collect();
    printed_migrations_have_the_same_effect(by_hand, applied, printed).await;
}

#[tokio::test]
async fn printed_migrations_have_the_same_effect_on_sqlite() {
    let (by_hand, applied) = (harness::unmigrated_sqlite(), harness::sqlite().await);
    let pool = sqlx::SqlitePool::connect_lazy(&by_hand.file().url()).expect("a pool");
    let client = Client::<Sqlite>::with_namespace(pool, PREFIX).expect("a client");
    let printed = client.migrations().into_iter().map(|(_, script)| script).collect();
    printed_migrations_have_the_same_effect(by_hand, applied, printed).await;
}

/// Two installations in one database know nothing of each other.
#[tokio::test]
async fn apply_twice_under_two_names_makes_two_installations() {
    let first = harness::postgres().await;
    let second = Client::<Postgres>::with_namespace(first.pool().clone(), "elsewhere").expect("a client");
    second.migrate().await.expect("a second installation");
    first.execute("drop schema elsewhere cascade").await;
    first.backend.migration_check().await.expect("the first one is complete");

    let first = harness::sqlite().await;
    let pool = sqlx::SqlitePool::connect(&first.file().url()).await.expect("a pool");
    let second = Client::<Sqlite>::with_namespace(pool.clone(), "elsewhere_").expect("a client");
    second.migrate().await.expect("a second installation");
    let tables: Vec<String> =
        sqlx::query_scalar("select name from sqlite_master where type = 'table' and name like 'elsewhere%'")
            .fetch_all(&pool)
            .await
            .expect("tables");
    assert!(tables.len() > 5);
    second.close().await;
    for table in tables.iter().rev() {
        let drop = AssertSqlSafe(format!("pragma foreign_keys = off; drop table {table}"));
        sqlx::raw_sql(drop).execute(&mut first.sqlite_connection().await).await.expect("a table less");
    }
    first.backend.migration_check().await.expect("the first one is complete");
}
