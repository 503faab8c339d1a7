//! Transactions that write elsewhere, for as long as they like.

use sqlstreams_runtime::backend::Backend;
use sqlx::{AssertSqlSafe, PgConnection};

use super::{Field, NOTHING, end, execute, old_transaction};
use crate::support::database::fresh_database;

/// Whether the transaction on that connection is older than everything that a snapshot of the field's
/// database takes for ended: whether it holds the cheap proof back.
async fn holds_xmin(field: &Field, old: &mut PgConnection) -> bool {
    let xid: String = sqlx::query_scalar("select pg_current_xact_id()::text").fetch_one(old).await.expect("it has one");
    let query = format!("select pg_snapshot_xmin(pg_current_snapshot()) <= '{xid}'::xid8");
    let held = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(field.installation.pool()).await;
    held.expect("a snapshot can be looked at")
}

async fn passes_by_the_exact_proof(field: &Field) {
    let produced = field.produce(3).await;
    for _ in 0..5 {
        let (_, row) = field.claim(100).await;
        assert_eq!((row.low, row.high), (0, 0), "the cheap proof can't pass: {row:?}");
        assert!(row.pending || row.contended);
    }
    field.backend().cursor_observe(field.stream, &[field.group]).await.expect("open producers can be observed");
    let (_, row) = field.claim(100).await;
    assert_eq!(field.read(&row).await, produced);
    // What comes next needs an observation of its own.
    let next = field.produce(2).await;
    assert_eq!(field.drain().await, next);
}

#[tokio::test]
async fn an_unrelated_old_transaction_does_not_stall_a_stream() {
    let field = Field::new().await;
    let mut old = old_transaction(field.installation.database().url()).await;
    assert!(holds_xmin(&field, &mut old).await);
    passes_by_the_exact_proof(&field).await;
    let causes = field.backend().cursor_stall(field.stream, field.group).await.expect("producers can be looked up");
    assert_eq!(causes, [], "it is not to blame");
    end(old, "rollback").await;
}

/// A snapshot's xmin is of the whole cluster.
#[tokio::test]
async fn an_old_transaction_in_another_database_does_not_stall_a_stream() {
    let field = Field::new().await;
    let elsewhere = fresh_database().await;
    let mut old = old_transaction(elsewhere.url()).await;
    assert!(holds_xmin(&field, &mut old).await, "the test's reason is gone: only the own database counts");
    passes_by_the_exact_proof(&field).await;
    end(old, "rollback").await;
}

#[tokio::test]
async fn an_open_producer_holds_back_its_own_stream_only() {
    let field = Field::new().await;
    let other = field.installation.stream("others").await;
    let group = field.installation.group(other, "readers").await;
    let mut old = old_transaction(field.installation.database().url()).await;
    execute(&mut old, "select sqlstreams.produce('others', '{}')").await;
    let produced = field.produce(1).await;
    assert_eq!(field.drain().await, produced);
    let others = Field { stream: other, group, ..field };
    others.produce(1).await;
    assert_eq!(others.attempts().await, NOTHING);
    end(old, "commit").await;
    assert_eq!(others.drain().await, [1, 2]);
}

/// A dump, or a reader that is idle in its transaction.
#[tokio::test]
async fn an_old_snapshot_does_not_hold_back_even_the_cheap_proof() {
    let field = Field::new().await;
    let mut reader = field.connection("a dump").await;
    execute(&mut reader, "begin isolation level repeatable read; select count(*) from sqlstreams.stream_config").await;
    let produced = field.produce(3).await;
    assert_eq!(field.drain().await, produced);
    end(reader, "commit").await;
}

/// Beside an old transaction, producers that are slow and overlap never leave a moment without one. Each
/// observation waits for those that it saw, and may not be given up for one that saw newer ones.
#[tokio::test]
async fn slow_producers_that_overlap_for_ever_do_not_starve_a_group_beside_an_old_transaction() {
    let field = Field::new().await;
    let old = old_transaction(field.installation.database().url()).await;
    let mut open = std::collections::VecDeque::new();
    let mut read = Vec::new();
    for _ in 0..12 {
        let mut producer = field.connection("a slow producer").await;
        execute(&mut producer, "begin; select sqlstreams.produce('notes', '{}')").await;
        open.push_back(producer);
        field.backend().cursor_observe(field.stream, &[field.group]).await.expect("open producers can be observed");
        if open.len() == 3 {
            end(open.pop_front().expect("three are open"), "commit").await;
        }
        let (_, row) = field.claim(100).await;
        read.extend(field.read(&row).await);
    }
    assert!(read.len() >= 6, "the group lags too far behind: {read:?}");
    for producer in open {
        end(producer, "commit").await;
    }
    read.extend(field.drain().await);
    assert_eq!(read, (1..=12).collect::<Vec<_>>());
    end(old, "rollback").await;
}
