//! A client that stops reading in the middle of a large claim.

use std::sync::Arc;

use sqlstreams_runtime::backend::Backend;
use sqlstreams_runtime::backend::postgres::PostgresBackend;
use sqlstreams_runtime::identity::{GroupId, PresenceId, StreamId};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use super::{Field, execute, until};
use crate::harness::{PATIENCE, SCHEMA, claim_on, read_params};
use crate::support::child::{ChildProcess, Parent};

/// Of a megabyte each. Twice what a generous system buffers for a connection.
const MESSAGES: i64 = 64;

/// The child's backend, when it sends what the child does not take.
const SENDING: &str = "select pid from pg_stat_activity where datname = current_database()
    and pid <> pg_backend_pid() and wait_event = 'ClientWrite'";

/// Any backend at work.
const ACTIVE: &str = "select pid from pg_stat_activity where datname = current_database()
    and pid <> pg_backend_pid() and state = 'active'";

/// The child's backend, when it is kept from reading.
const KEPT: &str = "select pid from pg_stat_activity where datname = current_database()
    and pid <> pg_backend_pid() and wait_event_type = 'Lock'";

/// Fills the log with large messages, and freezes a child while they are on the wire to it.
async fn frozen(field: &Field, watcher: &mut PgConnection, fused: bool) -> ChildProcess {
    let produce = "select sqlstreams.produce('notes', to_json(repeat('x', 1024 * 1024)))";
    execute(watcher, &format!("{produce} from generate_series(1, {MESSAGES})")).await;
    let (stream, group) = (field.stream.to_string(), field.group.to_string());
    let variables = [
        ("URL", field.installation.database().url()),
        ("STREAM", &stream),
        ("GROUP", &group),
        ("PRESENCE", &field.presence.to_string()),
        ("FUSED", if fused { "yes" } else { "no" }),
    ];
    let mut child = ChildProcess::start(module_path!(), "a_process_that_reads_a_large_claim", &variables);
    child.expect("ready", PATIENCE).await;
    let mut keeper = field.connection("keeper").await;
    // The child is frozen while the log is locked, and not whenever this machine gets to it. Its statement is
    // first prepared and then executed, and waits for the log both times.
    for _ in 0..3 {
        execute(&mut keeper, &format!("begin; lock table {} in access exclusive mode", field.table("message_log")))
            .await;
        child.tell("read");
        child.thaw();
        until(watcher, "the child waits for the log", &format!("select exists ({KEPT})")).await;
        child.freeze();
        execute(&mut keeper, "commit").await;
        let answered = format!("select exists ({SENDING}) or not exists ({ACTIVE})");
        until(watcher, "the child's statement was answered", &answered).await;
        let sending = format!("select exists ({SENDING})");
        if sqlx::query_scalar(AssertSqlSafe(sending)).fetch_one(&mut *watcher).await.expect("an answer") {
            return child;
        }
    }
    panic!("the backend does not wait for the frozen child");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_client_in_the_middle_of_a_large_claim_does_not_block_its_group() {
    let field = Field::new().await;
    let mut watcher = field.connection("watcher").await;
    let mut child = frozen(&field, &mut watcher, false).await;
    let produced = field.produce(5).await;
    assert_eq!(field.drain().await, produced, "others claim on");
    let sending = format!("select exists ({SENDING})");
    let sending: bool = sqlx::query_scalar(AssertSqlSafe(sending)).fetch_one(&mut watcher).await.expect("an answer");
    assert!(sending, "the child was not frozen all the time");
    child.thaw();
    assert_eq!(child.expect("read", PATIENCE).await, MESSAGES.to_string());
}

/// What happens when one statement locks the cursor and sends the payloads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_client_with_a_fused_claim_blocks_its_group() {
    let field = Arc::new(Field::new().await);
    let mut watcher = field.connection("watcher").await;
    let mut child = frozen(&field, &mut watcher, true).await;
    let other = field.clone();
    let claiming = tokio::spawn(async move { other.claim(10).await });
    let blocked =
        format!("select exists (select from pg_locks where not granted and pg_blocking_pids(pid) && array({SENDING}))");
    until(&mut watcher, "another claimer waits for the frozen one", &blocked).await;
    child.thaw();
    assert_eq!(child.expect("read", PATIENCE).await, MESSAGES.to_string());
    claiming.await.expect("the claim ends");
}

#[tokio::test]
#[ignore = "the second process of the tests above"]
async fn a_process_that_reads_a_large_claim() {
    let Some(mut parent) = Parent::connect() else { return };
    let variable = |name: &str| std::env::var(name).expect("the parent sets the variable");
    let number = |name: &str| variable(name).parse::<i64>().expect("the variable is a number");
    let (stream, group) = (StreamId(number("STREAM")), GroupId(number("GROUP")));
    let presence = PresenceId(variable("PRESENCE").parse::<Uuid>().expect("the variable is an id"));
    let pool = PgPool::connect(&variable("URL")).await.expect("the server takes connections");
    let read = if variable("FUSED") == "yes" {
        let fused = format!(
            "with c as materialized (select claimed from {SCHEMA}.consumer_group_cursor_{stream} for update)
            select m.payload::text from c join {SCHEMA}.message_log_{stream} m on m.id > c.claimed"
        );
        parent.say("ready");
        parent.hear().await;
        sqlx::query(AssertSqlSafe(fused)).fetch_all(&pool).await.expect("the fused claim reads").len()
    } else {
        let backend = PostgresBackend::new(pool, SCHEMA).expect("the schema's name is usable");
        let (_, row) = claim_on(&backend, stream, group, presence, MESSAGES).await;
        parent.say("ready");
        parent.hear().await;
        let read = backend.message_read(&read_params(stream, row.low, row.high)).await;
        read.expect("a large range can be read").len()
    };
    parent.say(format_args!("read {read}"));
}
