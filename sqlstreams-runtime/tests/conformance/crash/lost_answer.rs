//! Statements whose answer never came: the work may be done, and only the database knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlstreams_runtime::schema::{GroupConfig, RetryPolicy};
use sqlstreams_runtime::{Client, Group, Outcome};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::proxy::Proxy;
use super::{Application, Numbers, Running, acknowledged, settled};
use crate::fence::declared::{Note, NoteReaders};
use crate::fence::{connection, end, execute, until};
use crate::harness::{PATIENCE, presence_params};
use crate::support::database::{Database, fresh_database};

/// Less than the ten seconds after which any lease is freed that its owner does not name.
const SOON: Duration = Duration::from_secs(9);

/// An application behind a network that can be held and cut, and the server as seen from beside it.
struct World {
    database: Database,
    proxy: Proxy,
    application: Application,
    beside: PgConnection,
}

impl World {
    async fn new() -> Self {
        let database = fresh_database().await;
        let proxy = Proxy::start(database.url()).await;
        let client = Client::<Postgres>::new(proxy.pool(database.url()).await).expect("the pool is usable");
        let application = Application::start(client).await;
        // The consumer is there when its group is.
        let mut beside = connection(database.url(), "beside").await;
        let there = "select exists (select from sqlstreams.consumer_group_cursor_1)
            and exists (select from sqlstreams.presence)";
        until(&mut beside, "the consumer runs", there).await;
        Self { database, proxy, application, beside }
    }

    /// Keeps the engine from a table of the stream: its next statement on it waits.
    async fn lock(&self, table: &str) -> PgConnection {
        let mut keeper = connection(self.database.url(), "keeper").await;
        execute(&mut keeper, &format!("begin; lock table sqlstreams.{table}_1 in access exclusive mode")).await;
        keeper
    }

    /// Waits until a statement of the engine with that owner tag waits for a lock; its backend.
    async fn waiting(&mut self, tag: &str) -> i32 {
        let waiting = format!(
            "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                and query like '-- sqlstreams: {tag}%'"
        );
        until(&mut self.beside, "the statement waits", &format!("select exists ({waiting})")).await;
        let pid = sqlx::query_scalar(AssertSqlSafe(waiting)).fetch_one(&mut self.beside).await;
        pid.expect("the statement waits for a lock")
    }

    /// Cuts the network, and mends it when the engine has looked in vain several times.
    async fn lose_answers(&self) {
        lose_answers(&self.proxy).await;
    }

    async fn check(&mut self, what: &str, query: &str) {
        until(&mut self.beside, what, query).await;
    }

    async fn end(self) {
        self.application.end().await;
        self.beside.close().await.expect("a connection can be closed");
    }
}

async fn lose_answers(proxy: &Proxy) {
    proxy.go_away();
    proxy.refuses(24).await;
    proxy.come_back();
}

/// What proves the next message at once, so that the claim that waits takes it.
const PROVEN: &str = "update sqlstreams.consumer_group_cursor_1 set proven_head = 1, pending_head = null,
    pending_xid = null, exact_head = null, exact_xids = null; commit";

async fn produce_beside(world: &mut World, n: u64) {
    execute(&mut world.beside, &format!("select sqlstreams.produce('notes', '{{\"n\": {n}}}')")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_was_lost_is_found_again() {
    let mut world = World::new().await;
    let keeper = world.lock("consumer_group_cursor").await;
    produce_beside(&mut world, 7).await;
    world.waiting("claim.take").await;
    world.proxy.hold();
    end(keeper, PROVEN).await;
    let claimed = "select exists (select from sqlstreams.claim_lease_1)";
    world.check("the claim is done", claimed).await;
    assert_eq!(world.application.handled.count(), 0, "the answer got through");
    world.lose_answers().await;
    timeout(SOON, world.application.handled.all(&[7])).await.expect("the claim is found soon");
    settled::<NoteReaders>(&world.application.client).await;
    assert_eq!(world.application.handled.times(), [(7, 1)].into());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_backend_was_killed_is_made_again() {
    let mut world = World::new().await;
    let keeper = world.lock("consumer_group_cursor").await;
    produce_beside(&mut world, 7).await;
    for _ in 0..3 {
        let pid = world.waiting("claim.take").await;
        execute(&mut world.beside, &format!("select pg_terminate_backend({pid}, 5000)")).await;
        let gone = format!("select not exists (select from pg_stat_activity where pid = {pid})");
        world.check("the backend is gone", &gone).await;
        // The engine looks for the claim, and then makes another one.
        let cursor = "select exists (select from pg_locks where not granted)";
        world.check("another statement waits", cursor).await;
    }
    end(keeper, "commit").await;
    timeout(SOON, world.application.handled.all(&[7])).await.expect("the claim is made again soon");
    settled::<NoteReaders>(&world.application.client).await;
    assert_eq!(world.application.handled.times(), [(7, 1)].into());
    world.end().await;
}

/// The same for a range of a process that is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_whose_answer_was_lost_is_found_again() {
    let mut world = World::new().await;
    let keeper = world.lock("claim_lease").await;
    world.waiting("lease.reclaim").await;
    let gone = presence_params(Duration::ZERO).id;
    let mut keeper = keeper;
    let abandoned = format!(
        "insert into sqlstreams.message_log_1 (schema_version, codec, payload) values (1, 0, '{{\"n\": 7}}');
        insert into sqlstreams.presence (id, build, process, readable, expires_at)
            values ('{gone}', '0.1.0', 'gone', '[]', now() - interval '1 minute');
        insert into sqlstreams.claim_lease_1 (token, consumer_group_id, seq, presence_id, low, high)
            select '{gone}', consumer_group_id, 1, '{gone}', 0, 1 from sqlstreams.consumer_group_cursor_1;
        update sqlstreams.consumer_group_cursor_1 set claimed = 1, proven_head = 1"
    );
    execute(&mut keeper, &abandoned).await;
    world.proxy.hold();
    end(keeper, "commit").await;
    let taken = format!("select exists (select from sqlstreams.claim_lease_1 where token <> '{gone}')");
    world.check("the range is taken over", &taken).await;
    world.lose_answers().await;
    timeout(SOON, world.application.handled.all(&[7])).await.expect("the range is found soon");
    settled::<NoteReaders>(&world.application.client).await;
    assert_eq!(world.application.handled.times(), [(7, 1)].into());
    world.end().await;
}

struct Failing;

impl Group for Failing {
    type Stream = Note;
    const NAME: &'static str = "failing";
    const CONFIG: GroupConfig = GroupConfig {
        retry: RetryPolicy { first_delay: Duration::from_millis(1), ..RetryPolicy::DEFAULT },
        ..GroupConfig::DEFAULT
    };
}

/// The same for a message that is to be run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_in_trouble_whose_taking_was_not_answered_is_run_again() {
    let database = fresh_database().await;
    let proxy = Proxy::start(database.url()).await;
    let client = Client::<Postgres>::new(proxy.pool(database.url()).await).expect("the pool is usable");
    client.migrate().await.expect("a fresh installation can be migrated");
    let notes = client.producer::<Note>().await.expect("a stream can be registered");
    let (ran, mut runs) = mpsc::unbounded_channel();
    let failures = Arc::new(AtomicU32::new(0));
    let consumer = client.consumer().group_fn::<Failing, _, _>(move |_, _| {
        let run = failures.fetch_add(1, Ordering::AcqRel);
        let told = ran.send(run);
        async move {
            told?;
            if run == 0 { Err("not yet".into()) } else { Ok(Outcome::Done) }
        }
    });
    let consumer = Running::start(consumer);
    let mut beside = connection(database.url(), "beside").await;
    let mut keeper = connection(database.url(), "keeper").await;
    execute(&mut keeper, "begin; lock table sqlstreams.exception_queue_1 in access exclusive mode").await;
    notes.produce(&Note { n: 1 }).await.expect("a message can be produced");
    assert_eq!(timeout(PATIENCE, runs.recv()).await.expect("in time"), Some(0));
    // Its failure waits for the table, and so does the next look for trouble.
    let waiting = |tag: &str| {
        format!(
            "select exists (select from pg_stat_activity where datname = current_database()
            and wait_event_type = 'Lock' and query like '-- sqlstreams: {tag}%')"
        )
    };
    until(&mut beside, "the failure waits", &waiting("lease.settle")).await;
    until(&mut beside, "the look waits", &waiting("exception.take")).await;
    // Let the failure in first, and then the look, unheard.
    let recorded = "insert into sqlstreams.exception_queue_1 (consumer_group_id, message_id, status, schema_version,
        attempts, failures, failures_total, can_run_after)
        select id, 1, 'ready', 1, 1, 1, 1, now() from sqlstreams.consumer_group_config";
    execute(&mut keeper, recorded).await;
    proxy.hold();
    end(keeper, "commit").await;
    let taken = "select exists (select from sqlstreams.exception_queue_1 where status = 'inflight')";
    until(&mut beside, "the message is taken", taken).await;
    lose_answers(&proxy).await;
    assert_eq!(timeout(SOON, runs.recv()).await.expect("it is run again soon"), Some(1));
    settled::<Failing>(&client).await;
    consumer.stop().await;
    client.close().await;
    beside.close().await.expect("a connection can be closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_cut_again_and_again_loses_nothing_and_leaves_nothing_stuck() {
    const CUTS: usize = 12;
    const BETWEEN: usize = 25;
    let world = World::new().await;
    let numbers = Numbers::default();
    let mut producers = JoinSet::new();
    for _ in 0..4 {
        let (notes, numbers) = (world.application.notes.clone(), numbers.clone());
        producers.spawn(async move {
            let mut produced = Vec::new();
            for _ in 0..CUTS * BETWEEN / 3 {
                produced.push(acknowledged(&notes, &numbers).await.0);
            }
            produced
        });
    }
    for cut in 1..=CUTS {
        world.application.handled.at_least(cut * BETWEEN).await;
        world.proxy.cut();
    }
    let produced = producers.join_all().await.concat();
    timeout(SOON, world.application.handled.all(&produced)).await.expect("nothing is stuck");
    settled::<NoteReaders>(&world.application.client).await;
    world.end().await;
}
