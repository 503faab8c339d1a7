//! Tests of the test support itself.

use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

use crate::support::child::{ChildProcess, Parent};
use crate::support::cluster::{Cluster, Mode, Options};
use crate::support::database::{fresh_database, fresh_database_on, server, sqlite_file};

const LIMIT: Duration = Duration::from_secs(30);

async fn ask(url: &str, question: &'static str) -> sqlx::Result<String> {
    let mut connection = PgConnection::connect(url).await?;
    let answer = sqlx::query_scalar(question).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(answer)
}

#[tokio::test]
async fn a_cluster_keeps_its_data_and_address_through_a_crash() {
    let cluster = Cluster::start(Options::default().with("wal_writer_delay", "5s"));
    let url = cluster.url("postgres");
    assert_eq!(ask(&url, "show fsync").await.expect("the server answers"), "on");
    assert_eq!(ask(&url, "show wal_writer_delay").await.expect("the server answers"), "5s");
    let before = cluster.pid();
    let mut connection = PgConnection::connect(&url).await.expect("the server answers");
    sqlx::raw_sql("create table kept (word text); insert into kept values ('here')")
        .execute(&mut connection)
        .await
        .expect("a table can be made");

    cluster.stop(Mode::Immediate);
    assert!(connection.ping().await.is_err());
    assert!(ask(&url, "select word from kept").await.is_err());
    cluster.start_again();
    assert_ne!(cluster.pid(), before);
    assert_eq!(ask(&url, "select word from kept").await.expect("the server is back"), "here");
    assert!(cluster.log().contains("automatic recovery"), "the stop was no crash: {}", cluster.log());

    cluster.stop(Mode::Fast);
    cluster.start_again();
    assert_eq!(ask(&url, "select word from kept").await.expect("the server is back"), "here");
}

#[tokio::test]
async fn a_dropped_cluster_leaves_nothing() {
    let cluster = Cluster::start(Options::default());
    let (url, folder) = (cluster.url("postgres"), cluster.folder().to_owned());
    assert!(folder.is_dir());
    drop(cluster);
    assert!(!folder.exists());
    assert!(ask(&url, "select 'up'").await.is_err());
}

#[tokio::test]
async fn a_cluster_goes_down_with_the_process_that_was_killed() {
    let mut child = ChildProcess::start(module_path!(), "a_process_with_a_cluster", &[]);
    let folder = child.expect("folder", LIMIT).await;
    let folder = std::path::Path::new(&folder);
    assert!(folder.is_dir());
    child.kill();
    let deadline = Instant::now() + LIMIT;
    while folder.exists() {
        assert!(Instant::now() < deadline, "{} is still there", folder.display());
        std::thread::yield_now();
    }
}

#[tokio::test]
#[ignore = "the second process of a_cluster_goes_down_with_the_process_that_was_killed"]
async fn a_process_with_a_cluster() {
    let Some(mut parent) = Parent::connect() else {
        return;
    };
    let cluster = Cluster::start(Options::default());
    parent.say(format_args!("folder {}", cluster.folder().display()));
    parent.hear().await;
}

#[tokio::test]
async fn fresh_databases_are_apart_and_dropped_at_the_end() {
    let (one, other) = (fresh_database().await, fresh_database().await);
    let name = ask(one.url(), "select current_database()::text").await.expect("the database is there");
    assert_eq!(name, one.name());
    assert_ne!(one.name(), other.name());
    let url = one.url().to_owned();
    let _still_open = PgConnection::connect(&url).await.expect("the database is there");
    drop(one);
    assert!(ask(&url, "select 'up'").await.is_err());
    ask(server(), "select 'up'").await.expect("the server stays");
}

#[tokio::test]
async fn a_fresh_database_may_be_dropped_after_its_server() {
    let cluster = Cluster::start(Options::default());
    let database = fresh_database_on(&cluster.url("postgres")).await;
    drop(cluster);
    drop(database);
}

#[tokio::test]
async fn a_sqlite_file_is_apart_and_removed_at_the_end() {
    let (one, other) = (sqlite_file(), sqlite_file());
    assert_ne!(one.path(), other.path());
    let folder = one.folder().to_owned();
    let mut connection = sqlx::SqliteConnection::connect(&one.url()).await.expect("the file is created");
    sqlx::raw_sql("create table kept (word text)").execute(&mut connection).await.expect("a table can be made");
    assert!(one.path().exists());
    drop(connection);
    drop(one);
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_child_is_told_frozen_thawed_and_heard() {
    let mut child = ChildProcess::start(module_path!(), "an_echoing_process", &[("GREETING", "good day")]);
    assert_eq!(child.line(LIMIT).await, "good day");
    child.tell("one");
    assert_eq!(child.line(LIMIT).await, "heard one");
    child.freeze();
    child.tell("two");
    assert!(child.said_nothing(Duration::from_millis(50)).await);
    child.thaw();
    assert_eq!(child.expect("heard", LIMIT).await, "two");
    child.tell("end");
    assert!(child.ended(LIMIT).await.success());
    assert!(child.printed().contains("a line for the log"));
}

#[tokio::test]
#[ignore = "the second process of a_child_is_told_frozen_thawed_and_heard"]
async fn an_echoing_process() {
    let Some(mut parent) = Parent::connect() else {
        return;
    };
    eprintln!("a line for the log");
    parent.say(std::env::var("GREETING").expect("the variable was given"));
    loop {
        match parent.hear().await.as_str() {
            "end" => return,
            line => parent.say(format_args!("heard {line}")),
        }
    }
}
