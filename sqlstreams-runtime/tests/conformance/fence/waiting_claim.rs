//! A claim that waited for the cursor's row has an older snapshot than what it then finds.

use std::sync::Arc;

use sqlstreams_runtime::backend::ClaimRow;
use sqlstreams_runtime::identity::LeaseToken;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::task::JoinHandle;

use super::{Field, execute, pid, until, until_locked_out};
use crate::harness::claim_params;

/// Another claimer that has the cursor's row and has not yet committed.
async fn lock_cursor(field: &Field) -> PgConnection {
    let mut blocker = field.connection("another claimer").await;
    execute(&mut blocker, &format!("begin; select from {} for update", field.table("consumer_group_cursor"))).await;
    blocker
}

/// What that claimer writes: a proof that it could see, and a range of its own.
async fn store(field: &Field, blocker: &mut PgConnection, claimed: i64, proven: i64) {
    let cursor = field.table("consumer_group_cursor");
    let statements = format!(
        "insert into {cursor} (consumer_group_id, seq, epoch, claimed, committed, proven_head)
            select consumer_group_id, seq + 1, epoch, {claimed}, committed, {proven} from {cursor};
        delete from {cursor} where seq < (select max(seq) from {cursor});
        commit"
    );
    execute(blocker, &statements).await;
}

/// Starts a claim and waits until it waits for the row.
async fn waiting(field: &Arc<Field>, blocker: &mut PgConnection) -> JoinHandle<(LeaseToken, ClaimRow)> {
    let blocked = blocker_of(blocker).await;
    let claimer = field.clone();
    let waiting = tokio::spawn(async move { claimer.claim(100).await });
    until(blocker, "the claim waits for the row", &blocked).await;
    waiting
}

async fn blocker_of(blocker: &mut PgConnection) -> String {
    let blocker = pid(blocker).await;
    // Not pg_stat_activity, which stays as it is within the blocker's transaction.
    format!("select exists (select from pg_locks where not granted and {blocker} = any(pg_blocking_pids(pid)))")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claimer_that_waited_for_the_cursors_row_never_reads_with_its_older_snapshot() {
    for claimed in [0, 4] {
        let field = Arc::new(Field::new().await);
        let mut producer = field.connection("producer").await;
        let mut tx = producer.begin().await.expect("a transaction can begin");
        let first = field.produce_in(&mut tx).await;
        let rest = field.produce(9).await;
        let mut blocker = lock_cursor(&field).await;
        let waiting = waiting(&field, &mut blocker).await;
        tx.commit().await.expect("a transaction can commit");
        store(&field, &mut blocker, claimed, 10).await;
        let (_, row) = waiting.await.expect("the claim ends");
        // It may take nothing, or what is right by now; and what it read before must not matter.
        assert!(row.contended || row.high > row.low, "{row:?}");
        let mut read = field.read(&row).await;
        read.extend(field.drain().await);
        let all = [first].into_iter().chain(rest).filter(|id| *id > claimed);
        assert_eq!(read, all.collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claimer_whose_blocker_rolled_back_claims_on() {
    let field = Arc::new(Field::new().await);
    let mut producer = field.connection("producer").await;
    let mut tx = producer.begin().await.expect("a transaction can begin");
    let first = field.produce_in(&mut tx).await;
    let rest = field.produce(9).await;
    let mut blocker = lock_cursor(&field).await;
    let waiting = waiting(&field, &mut blocker).await;
    tx.commit().await.expect("a transaction can commit");
    execute(&mut blocker, "rollback").await;
    let (_, row) = waiting.await.expect("the claim ends");
    assert!(!row.contended, "{row:?}");
    let mut read = field.read(&row).await;
    read.extend(field.drain().await);
    assert_eq!(read, [first].into_iter().chain(rest).collect::<Vec<_>>());
}

/// The design that this engine does not have: a cursor updated in place, and messages read by the statement
/// that locks it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fused_claim_on_a_cursor_updated_in_place_loses_a_message_here() {
    let field = Arc::new(Field::new().await);
    let (cursor, log) = (field.table("consumer_group_cursor"), field.table("message_log"));
    let mut producer = field.connection("producer").await;
    let mut tx = producer.begin().await.expect("a transaction can begin");
    let first = field.produce_in(&mut tx).await;
    let rest = field.produce(9).await;
    let mut blocker = lock_cursor(&field).await;
    let mut claimer = field.connection("claimer").await;
    let claimer_pid = pid(&mut claimer).await;
    let fused = format!(
        "with c as materialized (select claimed, proven_head from {cursor} for update)
        select m.id from c join {log} m on m.id > c.claimed and m.id <= c.proven_head order by m.id"
    );
    let waiting = tokio::spawn(async move {
        let ids = sqlx::query_scalar::<_, i64>(AssertSqlSafe(fused)).fetch_all(&mut claimer).await;
        ids.expect("the claim answers")
    });
    until_locked_out(&mut blocker, claimer_pid).await;
    tx.commit().await.expect("a transaction can commit");
    execute(&mut blocker, &format!("update {cursor} set proven_head = 10; commit")).await;
    let read = waiting.await.expect("the claim ends");
    assert_eq!(read, rest, "message {first} was committed before the claim got its row");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn competing_claimers_take_every_id_once() {
    let field = Arc::new(Field::new().await);
    let produced = field.produce(400).await;
    let mut claimers = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (field, backend) = (field.clone(), field.installation.another().await);
        claimers.spawn(async move {
            let mut taken = Vec::new();
            loop {
                let params = claim_params(field.stream, field.group, field.presence, 3);
                let row = backend.claim_take(&params).await.expect("a claim answers");
                taken.extend(row.low + 1..=row.high);
                if !row.contended && row.high >= row.head {
                    return taken;
                }
                if row.pending {
                    backend.cursor_observe(field.stream, &[field.group]).await.expect("producers can be observed");
                }
            }
        });
    }
    let mut taken = claimers.join_all().await.concat();
    taken.sort_unstable();
    assert_eq!(taken, produced);
}
