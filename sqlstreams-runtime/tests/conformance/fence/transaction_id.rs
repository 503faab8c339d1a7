//! Producers own a transaction id before they draw a message id: the cheap proof rests on it.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::Timestamp;
use sqlstreams_runtime::backend::postgres::PostgresBackend;
use sqlstreams_runtime::backend::{Backend, ProducedRow, PromoteParams};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use super::{Field, execute, until};
use crate::harness::{SCHEMA, delayed, item, message, produce_with};

/// Holds every insert back between its message id and its row.
const GATE: &str = "
    create function gate() returns trigger language plpgsql as $$
    begin
        perform pg_advisory_xact_lock_shared(1);
        return new;
    end $$;
    create trigger gate before insert on LOG for each row execute function gate();";

/// The backend that waits at the gate.
const CAUGHT: &str = "select pid from pg_locks where locktype = 'advisory' and not granted
    and database = (select oid from pg_database where datname = current_database())";

struct Gate {
    field: Arc<Field>,
    keeper: PgConnection,
}

/// What a producer was seen to have between its message id and its row.
#[derive(Debug, PartialEq, Eq)]
struct Caught {
    ids: i64,
    owns_transaction_id: bool,
    holds_lock_on_parent: bool,
}

impl Gate {
    async fn new() -> Self {
        let field = Arc::new(Field::new().await);
        field.installation.execute(&GATE.replace("LOG", &field.table("message_log"))).await;
        let keeper = field.connection("gatekeeper").await;
        Self { field, keeper }
    }

    /// Lets `producing` run into the closed gate, looks, and lets it through.
    async fn catch<T: Send + 'static>(&mut self, producing: impl Future<Output = T> + Send + 'static) -> Caught {
        let before = self.field.drawn().await;
        execute(&mut self.keeper, "select pg_advisory_lock(1)").await;
        let producing = tokio::spawn(producing);
        until(&mut self.keeper, "the producer is caught", &format!("select exists ({CAUGHT})")).await;
        let parent = self.field.table("message_log");
        let look = format!(
            "select a.backend_xid is not null, exists (
                select from pg_locks l where l.pid = a.pid and l.relation = '{parent}'::regclass
                    and l.mode = 'RowExclusiveLock' and l.granted)
            from pg_stat_activity a where a.pid in ({CAUGHT})"
        );
        let seen: (bool, bool) =
            sqlx::query_as(AssertSqlSafe(look)).fetch_one(&mut self.keeper).await.expect("the producer is there");
        let ids = self.field.drawn().await - before;
        execute(&mut self.keeper, "select pg_advisory_unlock(1)").await;
        producing.await.expect("the producer ends");
        Caught { ids, owns_transaction_id: seen.0, holds_lock_on_parent: seen.1 }
    }
}

const SAFE: Caught = Caught { ids: 1, owns_transaction_id: true, holds_lock_on_parent: true };

/// A backend whose producers get plans of one kind.
async fn backend(field: &Field, plans: &str) -> (PgPool, Arc<PostgresBackend>) {
    let options: PgConnectOptions = field.installation.database().url().parse().expect("a URL of Postgres");
    let options = options.options([("plan_cache_mode", plans)]);
    let pool = PgPoolOptions::new().connect_with(options).await.expect("the server takes connections");
    let backend = PostgresBackend::new(pool.clone(), SCHEMA).expect("the schema's name is usable");
    (pool, Arc::new(backend))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_produce_path_has_a_moment_with_the_sequence_advanced_and_no_transaction_id() {
    let mut gate = Gate::new().await;
    let stream = gate.field.stream;
    for (key, plans) in ["force_custom_plan", "force_generic_plan"].into_iter().enumerate() {
        let key = u8::try_from(key).expect("a byte");
        let (pool, backend) = backend(&gate.field, plans).await;
        for messages in [1, 3] {
            let messages: Vec<_> = (0..messages).map(message).collect();
            let producer = backend.clone();
            let caught = gate.catch(async move {
                producer.message_produce(stream, 1, 0, &messages).await.expect("messages can be produced");
            });
            assert_eq!(caught.await, SAFE, "produce, {plans}");
        }
        let (producer, producers) = (backend.clone(), pool.clone());
        let caught = gate.catch(async move {
            let mut tx = producers.begin().await.expect("a transaction can begin");
            let ids = producer.produce_in(&mut tx, stream, 1, 0, &[message(0)]).await;
            ids.expect("a message can be produced in a transaction");
            tx.commit().await.expect("a transaction can commit");
        });
        assert_eq!(caught.await, SAFE, "produce_in, {plans}");
        let producer = backend.clone();
        let caught = gate.catch(async move {
            let rows = producer.message_produce_with(&produce_with(stream, &[item(Some(key), 7)])).await;
            assert!(matches!(rows.expect("a keyed message")[..], [ProducedRow::Message(_)]));
        });
        assert_eq!(caught.await, SAFE, "produce_with, {plans}");
        let producer = backend.clone();
        gate.field.installation.delay(stream, delayed(Duration::from_secs(60), 1)).await;
        let now = Some(Timestamp(gate.field.installation.now().await).plus(Duration::from_secs(120)));
        let caught = gate.catch(async move {
            let promote = PromoteParams { stream, since: None, limit: 500, now };
            assert_eq!(producer.delayed_promote(&promote).await.expect("a promotion").promoted, 1);
        });
        assert_eq!(caught.await, SAFE, "a promotion, {plans}");
        let producers = pool.clone();
        let caught = gate.catch(async move {
            let produce = sqlx::query("select sqlstreams.produce('notes', '{}')");
            produce.execute(&producers).await.expect("the function produces");
        });
        assert_eq!(caught.await, SAFE, "the SQL function, {plans}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_insert_draws_its_message_id_before_it_owns_a_transaction_id() {
    let mut gate = Gate::new().await;
    let insert = format!(
        "insert into {} (schema_version, codec, payload) values (1, 0, '{{}}')",
        gate.field.table("message_log")
    );
    // One draw in 32 writes WAL and takes a transaction id by accident.
    for _ in 0..4 {
        let (pool, insert) = (gate.field.installation.pool().clone(), insert.clone());
        let caught = gate.catch(async move {
            sqlx::query(AssertSqlSafe(insert)).execute(&pool).await.expect("a row can be inserted by hand");
        });
        if caught.await == (Caught { owns_transaction_id: false, ..SAFE }) {
            return;
        }
    }
    panic!("the test does not see the moment that it looks for");
}
