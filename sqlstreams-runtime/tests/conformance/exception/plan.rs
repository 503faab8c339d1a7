//! How Postgres looks for due messages: from the bound on, in order, and never through all that wait.

use sqlx::{AssertSqlSafe, Executor};

use crate::harness;

#[tokio::test]
async fn due_messages_are_looked_for_between_the_bound_and_now() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let queue = installation.table_of("exception_queue", stream);
    let columns = "consumer_group_id, message_id, status, schema_version, can_run_after";
    let due = "now() - interval '1 hour' + i * interval '1 millisecond'";
    let rows =
        format!("insert into {queue} ({columns}) select 1, i, 'ready', 1, {due} from generate_series(1, 20000) i");
    installation.execute(&format!("{rows}; analyze {queue}")).await;
    let statements = installation.postgres().statements(stream);
    let (_, take) = statements.iter().find(|(name, _)| *name == "exception_take").expect("the statement");
    let mut connection = installation.pool().acquire().await.expect("a connection");
    let settings = "set enable_seqscan = off; set enable_bitmapscan = off; set jit = off; \
                    set plan_cache_mode = force_generic_plan";
    connection.execute(sqlx::raw_sql(settings)).await.expect("settings");
    let types = "bigint, bigint, uuid, uuid, integer[], integer, bigint, bigint, bigint, boolean";
    let prepare = format!("prepare take ({types}) as {}", take.as_str());
    connection.execute(sqlx::raw_sql(AssertSqlSafe(prepare))).await.expect("the statement can be prepared");
    for bound in ["null", "extract(epoch from now() - interval '59 minutes 50 seconds')::bigint * 1000000"] {
        let explain = format!(
            "explain (analyze, costs off, timing off, buffers) execute take \
             (1, 100, gen_random_uuid(), gen_random_uuid(), '{{1}}', 3, null, 1, {bound}, false)"
        );
        let explain = sqlx::query_scalar(AssertSqlSafe(explain)).persistent(false);
        let plan: Vec<String> = explain.fetch_all(&mut *connection).await.expect("a plan");
        let plan = plan.join("\n");
        let due = plan.split("\n  CTE due\n").nth(1).and_then(|rest| rest.split("\n  CTE ").next());
        let due = due.unwrap_or_else(|| panic!("the due messages have no part of their own:\n{plan}"));
        let condition = due.lines().find(|line| line.contains("Index Cond")).expect("an index");
        assert!(condition.contains("can_run_after <= ") && condition.contains("can_run_after >= "), "{plan}");
        assert!(!due.contains("Sort") && !due.contains("Rows Removed by Filter"), "no more than the limit:\n{plan}");
        // Since 18 rows are shown with fractions.
        assert!(due.replace(".00", "").contains("actual rows=100 loops=1"), "{plan}");
        assert!(!plan.contains("exception_queue_1_open"), "nothing walks all that waits:\n{plan}");
    }
}
