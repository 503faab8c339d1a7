//! The exact proof: what it observes, and in which order.

use sqlstreams_runtime::backend::Backend;
use sqlx::{AssertSqlSafe, Connection};

use super::{Field, NOTHING, end, execute, old_transaction, pid, until_locked_out};

const EPOCH: i64 = 1 << 32;

/// The part of the observation that makes 64-bit xids of what `pg_locks` shows, on numbers of the test's.
async fn widened(field: &Field, next_xid: i64, shown: i64) -> i64 {
    let statement = field.statement("cursor_observe");
    let (_, rest) = statement.split_once("found as materialized (").expect("the statement has this part");
    let (found, _) = rest.split_once("),\nobserved as").expect("the statement has this part");
    assert!(found.contains("pg_catalog.pg_locks x"), "the test knows the statement's part");
    let query = format!(
        "with newest as (select $1::bigint as xid),
        holder as (select '3/7'::text as virtualtransaction),
        locks as (select 'transactionid' as locktype, 'ExclusiveLock' as mode, true as granted,
            '3/7'::text as virtualtransaction, $2::bigint::text as transactionid)
        {}",
        found.replace("pg_catalog.pg_locks x", "locks x")
    );
    let xid = sqlx::query_scalar(AssertSqlSafe(query)).bind(next_xid).bind(shown);
    xid.fetch_one(field.installation.pool()).await.expect("the part answers one xid")
}

#[tokio::test]
async fn an_observed_transaction_id_keeps_its_epoch_when_the_counter_wraps() {
    let field = Field::new().await;
    for epoch in [0, 1, 7] {
        let start = epoch * EPOCH;
        // In the middle of an epoch, before and after the snapshot's next xid.
        assert_eq!(widened(&field, start + 5000, 4000).await, start + 4000);
        assert_eq!(widened(&field, start + 5000, 5003).await, start + 5003);
        // The counter is about to wrap, and the holder began after the snapshot.
        let end = start + EPOCH;
        assert_eq!(widened(&field, end - 2, EPOCH - 9).await, end - 9);
        assert_eq!(widened(&field, end - 2, 3).await, end + 3);
        // It has wrapped, and the holder is older than that.
        assert_eq!(widened(&field, end + 3, EPOCH - 9).await, end - 9);
        assert_eq!(widened(&field, end + 12, 3).await, end + 3);
        // As far apart as two running transactions can be: a server refuses work before two billion.
        assert_eq!(widened(&field, end + 2_000_000_000, EPOCH - 100_000_000).await, end - 100_000_000);
    }
}

#[tokio::test]
async fn what_is_observed_is_the_xids_of_those_who_hold_the_producers_lock() {
    let field = Field::new().await;
    let mut producer = field.connection("producer").await;
    execute(&mut producer, "begin; savepoint s; select sqlstreams.produce('notes', '{}')").await;
    let old = old_transaction(field.installation.database().url()).await;
    // A cursor's version exists with the first claim's observation.
    field.claim(10).await;
    field.backend().cursor_observe(field.stream, &[field.group]).await.expect("open producers can be observed");
    let xid: String =
        sqlx::query_scalar("select pg_current_xact_id()::text").fetch_one(&mut producer).await.expect("it has one");
    let observed = format!(
        "select '{xid}'::xid8 = any(exact_xids) and cardinality(exact_xids) = 2 and exact_head = 1 from {}",
        field.table("consumer_group_cursor")
    );
    let observed: bool =
        sqlx::query_scalar(AssertSqlSafe(observed)).fetch_one(field.installation.pool()).await.expect("one version");
    assert!(observed, "the producer and its savepoint, and nobody else");
    end(producer, "rollback").await;
    end(old, "rollback").await;
}

/// The head is read before the locks: whoever draws an id up to it holds the lock by then. Read the other way
/// round, a producer that begins between the two would be passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_head_is_read_before_the_locks() {
    let field = Field::new().await;
    for plans in ["force_custom_plan", "force_generic_plan"] {
        for setting in ["enable_nestloop", "enable_material", "enable_hashjoin", "enable_mergejoin", "jit"] {
            let mut connection = field.connection("planner").await;
            execute(&mut connection, &format!("set plan_cache_mode = {plans}; set {setting} = off")).await;
            let prepare = format!("prepare observe (bigint[]) as {}", field.statement("cursor_observe"));
            execute(&mut connection, &prepare).await;
            let explain = "explain (costs off) execute observe ('{1,2}')";
            let plan: Vec<String> =
                sqlx::query_scalar(explain).persistent(false).fetch_all(&mut connection).await.expect("a plan");
            let holder = plan.iter().skip_while(|line| !line.contains("CTE holder")).map(String::as_str);
            let holder: Vec<_> = holder.take_while(|line| !line.contains("CTE newest")).collect();
            let at = |what: &str| holder.iter().position(|line| line.contains(what)).expect("the plan has both");
            // The locks hang on the head, and not only by the planner's choice; the outer side is read first.
            assert!(holder.iter().any(|line| line.contains("One-Time Filter: (h.id IS NOT NULL)")), "{holder:#?}");
            assert!(holder.iter().any(|line| line.contains("Nested Loop")), "{holder:#?}");
            assert!(at("CTE Scan on head") < at("Function Scan on pg_lock_status"), "{setting}: {holder:#?}");
        }
    }
}

/// The sequence's row is written in place, for a moment with an id that nobody has drawn yet.
#[tokio::test]
async fn no_statement_that_proves_reads_the_sequences_row_itself() {
    let field = Field::new().await;
    for name in ["claim_take", "cursor_observe", "cursor_create"] {
        let statement = field.statement(name);
        assert!(statement.contains("pg_sequence_last_value("), "{name}");
        assert!(!statement.contains("last_value else"), "{name}");
    }
}

/// A dump that was restored on a server whose transaction ids are lower.
#[tokio::test]
async fn a_group_that_came_with_a_dump_goes_on() {
    let field = Field::new().await;
    let produced = field.produce(2).await;
    let restored = format!(
        "update {} set pending_head = 1, pending_xid = '900000000000'::xid8,
            exact_head = 1, exact_xids = '{{900000000000}}'",
        field.table("consumer_group_cursor")
    );
    field.installation.execute(&restored).await;
    assert_eq!(field.drain().await, produced);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observation_waits_for_the_cursors_row_and_loses_nothing_by_it() {
    let field = std::sync::Arc::new(Field::new().await);
    let mut producer = field.connection("producer").await;
    let mut tx = producer.begin().await.expect("a transaction can begin");
    let first = field.produce_in(&mut tx).await;
    let rest = field.produce(4).await;
    let mut blocker = field.connection("another claimer").await;
    execute(&mut blocker, &format!("begin; select from {} for update", field.table("consumer_group_cursor"))).await;
    let mut observer = field.connection("observer").await;
    let observer_pid = pid(&mut observer).await;
    let (statement, group) = (field.statement("cursor_observe"), vec![field.group.0]);
    let observing = tokio::spawn(async move {
        let observe = sqlx::query(AssertSqlSafe(statement)).bind(group).execute(&mut observer).await;
        observe.expect("an observation ends");
    });
    until_locked_out(&mut blocker, observer_pid).await;
    execute(&mut blocker, "commit").await;
    observing.await.expect("the observation ends");
    assert_eq!(field.attempts().await, NOTHING);
    tx.commit().await.expect("a transaction can commit");
    assert_eq!(field.drain().await, [&[first], &rest[..]].concat());
}
