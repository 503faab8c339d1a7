//! Databases whose transactions are stricter than the engine's statements.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Field, connection, execute, pid, until_locked_out};
use crate::harness::{claim_params, unmigrated_postgres};

/// An installation in a database with another default isolation, as some frameworks want it.
async fn strict(level: &str) -> Arc<Field> {
    let installation = unmigrated_postgres().await;
    let mut owner = connection(installation.database().url(), "owner").await;
    let name = installation.database().name();
    execute(&mut owner, &format!("alter database {name} set default_transaction_isolation = '{level}'")).await;
    // Only new connections get it.
    let others = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    execute(&mut owner, others).await;
    installation.backend.migration_apply().await.expect("a fresh installation can be migrated");
    Arc::new(Field::on(installation).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_do_not_collide_in_a_database_that_defaults_to_repeatable_read() {
    for level in ["repeatable read", "serializable"] {
        let field = strict(level).await;
        let default: String = sqlx::query_scalar("show transaction_isolation")
            .fetch_one(field.installation.pool())
            .await
            .expect("a level");
        assert_eq!(default, level, "the test's database is not strict");
        let mut produced = field.produce(150).await;
        let mut tx = field.installation.pool().begin().await.expect("a transaction can begin");
        produced.push(field.produce_in(&mut tx).await);
        tx.commit().await.expect("a transaction can commit");
        let mut claimers = JoinSet::new();
        for _ in 0..5 {
            let (field, backend) = (field.clone(), field.installation.another().await);
            claimers.spawn(async move {
                let mut taken = Vec::new();
                loop {
                    let params = claim_params(field.stream, field.group, field.presence, 2);
                    let row = backend.claim_take(&params).await.expect("a claim never collides");
                    taken.extend(row.low + 1..=row.high);
                    if !row.contended && row.high >= row.head {
                        return taken;
                    }
                    if row.pending {
                        let observed = backend.cursor_observe(field.stream, &[field.group]).await;
                        observed.expect("an observation never collides");
                    }
                }
            });
        }
        let mut taken = claimers.join_all().await.concat();
        taken.sort_unstable();
        assert_eq!(taken, produced);
    }
}

/// What the engine's own setting is for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_claims_statement_collides_at_repeatable_read() {
    let field = Field::new().await;
    field.produce(3).await;
    let mut blocker = field.connection("another claimer").await;
    let cursor = field.table("consumer_group_cursor");
    execute(&mut blocker, &format!("begin; delete from {cursor}")).await;
    let mut claimer = field.connection("claimer").await;
    execute(&mut claimer, "set default_transaction_isolation = 'repeatable read'").await;
    let claimer_pid = pid(&mut claimer).await;
    let (statement, group) = (field.statement("claim_take"), field.group.0);
    let claiming = tokio::spawn(async move {
        let claim = sqlx::query(AssertSqlSafe(statement)).bind(group).bind(10_i64);
        let claim = claim.bind(Uuid::now_v7()).bind(Uuid::now_v7()).bind(Vec::<Uuid>::new()).bind("off");
        claim.fetch_one(&mut claimer).await.map(|row| row.get::<bool, _>(4))
    });
    until_locked_out(&mut blocker, claimer_pid).await;
    execute(&mut blocker, "commit").await;
    let collided = claiming.await.expect("the claim ends").expect_err("the claim collides");
    let code = collided.as_database_error().and_then(|err| err.code().map(|code| code.into_owned()));
    assert_eq!(code.as_deref(), Some("40001"));
    blocker.close().await.expect("a connection can be closed");
}
