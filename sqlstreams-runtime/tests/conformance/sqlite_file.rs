//! What only a database in a file, which several processes share, can get wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlstreams_runtime::backend::Backend;
use sqlstreams_runtime::backend::sqlite::SqliteBackend;
use sqlstreams_runtime::identity::StreamId;
use sqlstreams_runtime::{Client, Error, Kind, MessageId, Outcome, Recovery};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Sqlite, SqliteConnection};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::interval;

use crate::session::recorder::Recorder;
use crate::session::world::{All, LIMIT, Order, World, connect, group, numbers, soon, start, take, telling};
use crate::support::child::{ChildProcess, Parent, say};
use crate::support::database::sqlite_file;

group!(One, Order, "one");
group!(Two, Order, "two");

/// A second process on the world's file.
fn child(world: &World<Sqlite>, test: &str, group: &str) -> ChildProcess {
    ChildProcess::start(module_path!(), test, &[("URL", &world.url()), ("GROUP", group)])
}

/// The client of a second process.
async fn child_client() -> Client<Sqlite> {
    connect(&std::env::var("URL").expect("the parent gives the variable")).await
}

/// Reads a child's lines until it has produced and handled this many.
async fn reaches(child: &mut ChildProcess, produced: u64, handled: u64) {
    let reading = async {
        let mut reached = (0, 0);
        while reached.0 < produced || reached.1 < handled {
            let line = child.line(LIMIT).await;
            let (word, number) = line.split_once(' ').expect("a word and a number");
            let number = number.parse().expect("a number follows");
            match word {
                "produced" => reached.0 = number,
                "handled" => reached.1 = number,
                word => panic!("the child says {word}"),
            }
        }
    };
    soon("enough of a child's work", reading).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_share_a_file_that_one_of_them_floods_and_nobody_starves() {
    let world = World::<Sqlite>::new().await;
    world.producer::<Order>().await;
    let mut flood = child(&world, "flooding_process", "");
    reaches(&mut flood, 1, 0).await;
    let mut others = [child(&world, "busy_process", "one"), child(&world, "busy_process", "two")];
    // Longer than a lease, since each leaves ten milliseconds between its produces.
    let mut left = Vec::new();
    for round in 1..=5 {
        for other in &mut others {
            reaches(other, round * 80, round * 200).await;
        }
        let millis = "cast(expires_at / 1000 - unixepoch('subsec') * 1000 as integer)";
        left.extend(world.numbers(&format!("select {millis} from {{}}presence")).await);
    }
    reaches(&mut flood, 1000, 0).await;
    assert_eq!(left.len(), 10, "two processes consume");
    assert!(left.iter().all(|millis| *millis > 0), "a presence expired: {left:?}");
    for other in &mut others {
        other.tell("stop");
        assert_eq!(other.expect("warnings", LIMIT).await, "[]");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that floods another test's file"]
async fn flooding_process() {
    let Some(_parent) = Parent::connect() else {
        return;
    };
    let url = std::env::var("URL").expect("the parent gives the variable");
    let options: SqliteConnectOptions = url.parse().expect("the URL names a file");
    let options = options.synchronous(SqliteSynchronous::Full).busy_timeout(LIMIT);
    let mut connection = options.connect().await.expect("the file can be opened");
    // Another program than ours, which leaves the lock for the shortest time only: a hundred commits at a go.
    let payload = serde_json::to_string(&Order::new(0)).expect("an order is JSON");
    let insert =
        format!("insert into sqlstreams_message_log_1 (schema_version, codec, payload) values (1, 0, '{payload}')");
    let hundred = format!("begin immediate; {insert}; commit;").repeat(100);
    for round in 1.. {
        sqlx::raw_sql(AssertSqlSafe(hundred.clone())).execute(&mut connection).await.expect("the flood goes on");
        say(format_args!("produced {}", round * 100));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that produces and consumes beside the flood of another test"]
async fn busy_process() {
    let Some(mut parent) = Parent::connect() else {
        return;
    };
    let recorder = Recorder::default();
    tracing::subscriber::set_global_default(recorder.clone()).expect("the process has no other subscriber");
    let client = child_client().await;
    let orders = client.producer::<Order>().await.expect("a stream can be registered");
    let handled = AtomicU64::new(0);
    let handler = move |_, _| {
        let handled = handled.fetch_add(1, Ordering::Relaxed) + 1;
        if handled.is_multiple_of(100) {
            say(format_args!("handled {handled}"));
        }
        async { Ok(Outcome::Done) }
    };
    let consumer = client.consumer().lease(Duration::from_secs(3));
    let consumer = match std::env::var("GROUP").as_deref() {
        Ok("one") => consumer.group_fn::<One, _, _>(handler),
        _ => consumer.group_fn::<Two, _, _>(handler),
    };
    let running = start(consumer);
    let producing = async {
        let mut ticks = interval(Duration::from_millis(10));
        for number in 1.. {
            ticks.tick().await;
            orders.produce(&Order::new(number)).await.expect("an order can be produced");
            say(format_args!("produced {number}"));
        }
    };
    tokio::select! {
        () = producing => {}
        _ = parent.hear() => {}
    }
    running.stop().await;
    say(format_args!("warnings {:?}", recorder.warnings()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_emptied_by_deletion_and_reopened_goes_on_with_higher_ids() {
    let world = World::<Sqlite>::new().await;
    let (sender, mut calls) = unbounded_channel();
    let orders = world.producer::<Order>().await;
    let before = orders.produce_batch(&Order::many(0..10)).await.expect("a batch can be produced");
    let running = start(telling::<All>(world.client.consumer(), &sender));
    take(&mut calls, 10).await;
    world.settled::<All>().await;
    running.stop().await;
    drop(orders);
    world.client.close().await;
    world.client.pool().close().await;

    let mut connection = SqliteConnection::connect(&world.url()).await.expect("the file can be opened");
    for statement in ["delete from sqlstreams_message_log_1", "vacuum"] {
        sqlx::raw_sql(statement).execute(&mut connection).await.expect("a test's own statement runs");
    }
    connection.close().await.expect("the connection closes");

    let client = world.another_client().await;
    let orders = client.producer::<Order>().await.expect("a stream can be registered");
    let position = client.position::<All>().await.expect("a group's position can be read");
    assert_eq!((position.head, position.settled), (before[9].0, before[9].0));
    let running = start(telling::<All>(client.consumer(), &sender));
    let one = orders.produce(&Order::new(10)).await.expect("an order can be produced");
    let more = orders.produce_batch(&Order::many(11..13)).await.expect("a batch can be produced");
    assert!(one > before[9] && more[0] > one, "{one} after {}", before[9]);
    let handled = take(&mut calls, 3).await;
    assert_eq!(numbers(&handled), [10, 11, 12]);
    running.stop().await;
}

fn conflicts(result: Result<MessageId, Error>, why: &str) {
    let err = result.expect_err("the transaction can't write");
    assert_eq!((err.kind(), err.recovery()), (Kind::Conflict, Recovery::Transient), "{err}");
    assert!(err.outcome_known());
    let text = err.to_string();
    assert!(text.contains(why) && text.contains("`begin_with(\"begin immediate\")`"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deferred_transaction_that_turns_to_writing_is_told_to_begin_immediate() {
    let world = World::<Sqlite>::new().await;
    let orders = world.producer::<Order>().await;
    let options: SqliteConnectOptions = world.url().parse().expect("the URL names a file");
    let impatient = SqlitePoolOptions::new().connect_lazy_with(options.busy_timeout(Duration::from_millis(50)));

    // It has read, and others have written since.
    let mut tx = world.client.pool().begin().await.expect("a transaction can begin");
    let count = sqlx::query_scalar::<_, i64>("select count(*) from sqlstreams_message_log_1");
    assert_eq!(count.fetch_one(&mut *tx).await.expect("the transaction can read"), 0);
    orders.produce(&Order::new(0)).await.expect("an order can be produced");
    conflicts(orders.produce_in(&mut tx, &Order::new(1)).await, "began by reading");
    tx.rollback().await.expect("the transaction can be rolled back");

    // Another one is writing.
    let holder = world.client.pool().begin_with("begin immediate").await.expect("a transaction can begin");
    let mut tx = impatient.begin().await.expect("a transaction can begin");
    conflicts(orders.produce_in(&mut tx, &Order::new(1)).await, "is writing");
    tx.rollback().await.expect("the transaction can be rolled back");
    drop(holder);

    // What the error says works.
    let mut tx = world.client.pool().begin_with("begin immediate").await.expect("a transaction can begin");
    orders.produce_in(&mut tx, &Order::new(1)).await.expect("an order can be produced");
    tx.commit().await.expect("the transaction can be committed");
    assert_eq!(world.number("select count(*) from {}message_log_1").await, 2);
}

#[tokio::test]
async fn a_database_in_memory_is_refused_with_the_way_out() {
    let check = |refused: Result<Client<Sqlite>, Error>, place: &str| {
        let Err(err) = refused else { panic!("{place} is taken") };
        assert_eq!((err.kind(), err.recovery()), (Kind::Declaration, Recovery::Permanent), "{place}");
        assert!(err.to_string().contains("in-memory") && err.to_string().contains("use a file"), "{place}: {err}");
    };
    let urls =
        ["sqlite::memory:", "sqlite://:memory:", "sqlite:", "sqlite://named?mode=memory", "sqlite:file:a?mode=memory"];
    for url in urls {
        check(Client::connect(url).await, url);
        let options: SqliteConnectOptions = url.parse().expect("sqlx takes the URL");
        check(Client::new(SqlitePoolOptions::new().connect_lazy_with(options)), url);
    }
    let options = SqliteConnectOptions::new().in_memory(true);
    check(Client::new(SqlitePoolOptions::new().connect_lazy_with(options)), "in_memory(true)");
    let file = sqlite_file();
    let client = Client::<Sqlite>::connect(&file.url()).await.expect("a file is taken");
    client.migrate().await.expect("a fresh installation can be migrated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_one_process_wakes_another() {
    let world = World::<Sqlite>::new().await;
    world.producer::<Order>().await;
    let options: SqliteConnectOptions = world.url().parse().expect("the URL names a file");
    let watching = SqliteBackend::open(options, "sqlstreams_").expect("the file can be opened");
    // What happened before it looked is unknown.
    assert_eq!(soon("the first look", watching.wake_wait()).await.expect("the file can be watched"), []);
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    let mut other = child(&world, "producing_process", "");
    for number in 0..3 {
        other.tell(number);
        let streams = soon("a wake-up", watching.wake_wait()).await.expect("the file can be watched");
        assert_eq!(streams, [StreamId(1)]);
        assert_eq!(numbers(&take(&mut calls, 1).await), [number]);
    }
    running.stop().await;
}

#[tokio::test]
#[ignore = "the process that produces to another test's file"]
async fn producing_process() {
    let Some(mut parent) = Parent::connect() else {
        return;
    };
    let orders = child_client().await.producer::<Order>().await.expect("a stream can be registered");
    loop {
        let number = parent.hear().await.parse().expect("the parent says a number");
        orders.produce(&Order::new(number)).await.expect("an order can be produced");
    }
}
