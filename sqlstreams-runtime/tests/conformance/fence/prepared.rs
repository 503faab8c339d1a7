//! Two-phase commits: a prepared transaction has no backend and can last for days.

use sqlx::{AssertSqlSafe, Connection};
use uuid::Uuid;

use super::{Field, NOTHING, end, execute, old_transaction};
use sqlstreams_runtime::StallCause;
use sqlstreams_runtime::backend::Backend;

/// Appends a message in a transaction and prepares it; the message's id.
async fn prepare(field: &Field, gid: &str) -> i64 {
    let mut producer = field.connection("producer").await;
    let mut tx = producer.begin().await.expect("a transaction can begin");
    let id = field.produce_in(&mut tx).await;
    let prepare = format!("prepare transaction '{gid}'");
    sqlx::query(AssertSqlSafe(prepare)).execute(&mut *tx).await.expect("the server has max_prepared_transactions");
    // Nothing is open any more; this only tells sqlx.
    tx.rollback().await.expect("a rollback without a transaction is a warning");
    producer.close().await.expect("a connection can be closed");
    id
}

/// Named for the server and not the database.
fn gid() -> String {
    format!("order-{}", Uuid::now_v7().simple())
}

async fn commit_prepared(field: &Field, gid: &str) {
    execute(&mut field.connection("coordinator").await, &format!("commit prepared '{gid}'")).await;
}

async fn causes(field: &Field) -> Vec<StallCause> {
    field.backend().cursor_stall(field.stream, field.group).await.expect("producers can be looked up")
}

#[tokio::test]
async fn a_prepared_transaction_with_a_pending_message_is_waited_for_and_named() {
    let field = Field::new().await;
    let gid = gid();
    let before = field.produce(2).await;
    assert_eq!(field.drain().await, before);
    let pending = prepare(&field, &gid).await;
    let after = field.produce(2).await;
    assert_eq!(field.attempts().await, NOTHING);
    match &causes(&field).await[..] {
        [cause] => {
            assert_eq!((cause.name.as_str(), cause.prepared, cause.pid), (gid.as_str(), true, None));
            assert!(cause.transaction.parse::<u32>().is_ok(), "{cause:?}");
        }
        causes => panic!("one transaction is in the way, and not {causes:?}"),
    }
    commit_prepared(&field, &gid).await;
    assert_eq!(field.drain().await, [&[pending], &after[..]].concat());
    assert_eq!(causes(&field).await, []);
}

#[tokio::test]
async fn a_prepared_transaction_is_waited_for_beside_an_old_one_too() {
    let field = Field::new().await;
    let old = old_transaction(field.installation.database().url()).await;
    let gid = gid();
    let before = field.produce(2).await;
    assert_eq!(field.drain().await, before);
    let pending = prepare(&field, &gid).await;
    let after = field.produce(2).await;
    assert_eq!(field.attempts().await, NOTHING);
    commit_prepared(&field, &gid).await;
    assert_eq!(field.drain().await, [&[pending], &after[..]].concat(), "the old transaction is still open");
    end(old, "rollback").await;
}

#[tokio::test]
async fn a_producer_that_was_observed_and_then_prepared_is_still_waited_for() {
    let field = Field::new().await;
    let old = old_transaction(field.installation.database().url()).await;
    let gid = gid();
    let mut producer = field.connection("producer").await;
    let mut tx = producer.begin().await.expect("a transaction can begin");
    let pending = field.produce_in(&mut tx).await;
    let after = field.produce(1).await[0];
    field.backend().cursor_observe(field.stream, &[field.group]).await.expect("open producers can be observed");
    let prepare = format!("prepare transaction '{gid}'");
    sqlx::query(AssertSqlSafe(prepare)).execute(&mut *tx).await.expect("the server has max_prepared_transactions");
    tx.rollback().await.expect("a rollback without a transaction is a warning");
    // Its backend goes on to another transaction, and then goes: by its process id it would seem ended.
    execute(&mut producer, "begin; select pg_current_xact_id(); commit").await;
    producer.close().await.expect("a connection can be closed");
    assert_eq!(field.attempts().await, NOTHING);
    commit_prepared(&field, &gid).await;
    assert_eq!(field.drain().await, [pending, after]);
    end(old, "rollback").await;
}

#[tokio::test]
async fn a_prepared_transaction_that_is_rolled_back_leaves_a_hole() {
    let field = Field::new().await;
    let gid = gid();
    prepare(&field, &gid).await;
    let after = field.produce(1).await;
    assert_eq!(field.attempts().await, NOTHING);
    execute(&mut field.connection("coordinator").await, &format!("rollback prepared '{gid}'")).await;
    assert_eq!(field.drain().await, after);
}
