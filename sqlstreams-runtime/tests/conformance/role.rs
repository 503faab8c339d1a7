//! Database roles with the rights that `Client::grants` gives them, on Postgres: each does its job and nothing else.

use std::collections::BTreeMap;

use sqlstreams_runtime::{
    Client, DeadLetterFilter, DiscardScope, Error, Kind, MessageId, Outcome, ProduceOptions, Produced, RoleKind,
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, Postgres};
use tokio::sync::mpsc::unbounded_channel;

use crate::harness;
use crate::session::world::{All, LIMIT, Order, World, deciding, numbers, plain_stream, start, take, telling};

const KINDS: [RoleKind; 3] = [RoleKind::Produce, RoleKind::Consume, RoleKind::Admin];

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Bill {
    cents: i64,
}
plain_stream!(Bill, "bills", 1);

/// A role of a test's own; drop it before its database.
struct Role {
    url: String,
    name: String,
}

impl Role {
    /// One that may connect, and no more.
    async fn new(owner: &PgPool, url: &str) -> Self {
        let name = format!("sqlstreams \"'$1$2@#\\{}", uuid::Uuid::new_v4().simple());
        let role = Self { url: url.to_owned(), name };
        let create = format!("create role {} login password 'secret'", role.identifier());
        sqlx::raw_sql(AssertSqlSafe(create)).execute(owner).await.expect("a role can be created");
        role
    }

    /// One with the rights of `kind`, on the world's installation.
    async fn of(world: &World<Postgres>, kind: RoleKind) -> Self {
        let role = Self::new(world.client.pool(), &world.url()).await;
        world.execute(&world.client.grants(kind, &role.name)).await;
        role
    }

    fn identifier(&self) -> String {
        format!("\"{}\"", self.name.replace('"', "\"\""))
    }

    async fn pool(&self) -> PgPool {
        let options: PgConnectOptions = self.url.parse().expect("a url");
        let options = options.username(&self.name).password("secret");
        let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(LIMIT).connect_with(options);
        pool.await.expect("the role may connect")
    }

    async fn client(&self) -> Client<Postgres> {
        Client::new(self.pool().await).expect("a client")
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let (url, role) = (self.url.clone(), self.identifier());
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let mut connection = PgConnection::connect(&url).await?;
                let statements = format!("drop owned by {role}; drop role {role}");
                sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut connection).await.map(drop)
            })
        });
        let _ = dropping.join();
    }
}

/// The result of a statement of a role's own, beside the engine.
async fn run(pool: &PgPool, statement: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(pool).await.map(drop)
}

fn is_denied(result: &Result<(), sqlx::Error>) -> bool {
    matches!(result, Err(sqlx::Error::Database(err)) if err.code().as_deref() == Some("42501"))
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, code: &str, way_out: &str) {
    let Err(err) = result else { panic!("the role's rights must be too few") };
    assert_eq!((err.kind(), err.code()), (Kind::Permission, code), "{err}");
    assert!(err.to_string().contains(way_out), "{err}");
    assert!(err.outcome_known());
}

async fn produced(client: &Client<Postgres>, numbers: std::ops::Range<u64>) -> Result<Vec<MessageId>, Error> {
    client.producer::<Order>().await?.produce_batch(&Order::many(numbers)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producing_role_produces_and_reads_no_payload() {
    let world = World::<Postgres>::new().await;
    world.client.producer_with::<Order>(10).await.expect("the owner registers the stream");
    let role = Role::of(&world, RoleKind::Produce).await;
    let client = role.client().await;

    let orders = client.producer::<Order>().await.expect("a stored stream can be joined");
    orders.produce(&Order::new(0)).await.expect("one");
    // More than the partitions that exist: the role makes room.
    orders.produce_batch(&Order::many(1..60)).await.expect("a batch");
    let mut tx = client.pool().begin().await.expect("a transaction");
    orders.produce_in(&mut tx, &Order::new(60)).await.expect("one in a transaction");
    tx.commit().await.expect("a commit");
    run(client.pool(), r#"select sqlstreams.produce('orders', '{"number": 61}')"#).await.expect("the function");
    assert_eq!(world.number("select count(*) from {}message_log_1").await, 62);

    let keyed = || ProduceOptions::new().idempotency_key("first");
    let first = orders.produce_with(&Order::new(62), keyed()).await.expect("one with a key");
    let again = orders.produce_with(&Order::new(62), keyed()).await.expect("a repetition");
    assert!(matches!((&first, &again), (Produced::Message(_), Produced::Duplicate(_))), "{first:?} {again:?}");
    let differs = orders.produce_with(&Order::new(63), keyed()).await.expect_err("another payload");
    assert_eq!(differs.code(), "SQLS-0220", "{differs}");
    let later = ProduceOptions::new().deliver_after(std::time::Duration::from_secs(3600));
    let Produced::Delayed(id) = orders.produce_with(&Order::new(64), later).await.expect("one for later") else {
        panic!("it is delayed");
    };
    assert!(orders.cancel(id).await.expect("it can be cancelled"));

    for column in ["payload", "headers", "routing_key"] {
        let read = run(client.pool(), &format!("select {column} from sqlstreams.message_log_1")).await;
        assert!(is_denied(&read), "{column}: {read:?}");
    }
    for statement in [
        "update sqlstreams.message_log_1 set payload = '1'",
        "delete from sqlstreams.message_log_1",
        "truncate sqlstreams.message_log_1",
        "insert into sqlstreams.message_log_1 (created_at, schema_version, codec, payload) values (now(), 1, 0, '1')",
        "select payload from sqlstreams.delayed_message_1",
    ] {
        assert!(is_denied(&run(client.pool(), statement).await), "{statement}");
    }
    let (calls, _) = unbounded_channel();
    let consumer = start(telling::<All>(client.consumer(), &calls));
    refused(consumer.end().await, "SQLS-0114", "RoleKind::Consume");
    refused(client.position::<All>().await, "SQLS-0114", "RoleKind::Consume");
    refused(client.producer::<Bill>().await.map(drop), "SQLS-0119", "RoleKind::Admin");
    refused(client.migrate().await, "SQLS-0114", "as the installation's owner");
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consuming_role_consumes_and_appends_nothing() {
    let world = World::<Postgres>::new().await;
    let orders = world.client.producer_with::<Order>(10).await.expect("the owner registers the stream");
    orders.produce_batch(&Order::many(0..60)).await.expect("a batch");
    let role = Role::of(&world, RoleKind::Consume).await;
    let client = role.client().await;

    let (consumer, mut calls) = deciding::<All>(client.consumer(), |order, delivery| match order.number {
        5 => Ok(Outcome::Dead("never".to_owned())),
        n if n % 7 == 0 && delivery.failures() == 0 => Err("once more".into()),
        _ => Ok(Outcome::Done),
    });
    let running = start(consumer);
    let handled = take(&mut calls, 60 + 9).await;
    let mut expected: Vec<u64> = (0..60).chain((0..60).filter(|n| n % 7 == 0)).collect();
    expected.sort_unstable();
    assert_eq!(numbers(&handled), expected);
    world.settled::<All>().await;
    assert_eq!(running.stop().await[0].done, 59);
    let position = client.position::<All>().await.expect("a position");
    assert_eq!((position.settled, position.dead), (position.head, 1));
    let letters = client.dead_letters::<All>().await.expect("dead letters");
    let listed = letters.list(&DeadLetterFilter::all(), MessageId(0), 10).await.expect("a list");
    assert_eq!(listed.len(), 1);
    assert_eq!(
        letters.redrive(&DeadLetterFilter::all(), std::time::Duration::ZERO).await.expect("a redrive").messages,
        1
    );
    letters.discard(&DeadLetterFilter::all(), DiscardScope::Running).await.expect("a discard");

    refused(produced(&client, 60..61).await, "SQLS-0114", "RoleKind::Produce");
    let mut tx = client.pool().begin().await.expect("a transaction");
    let orders = client.producer::<Order>().await.expect("a stored stream can be joined");
    refused(orders.produce_in(&mut tx, &Order::new(60)).await, "SQLS-0114", "RoleKind::Produce");
    drop(tx);
    refused(client.producer::<Bill>().await.map(drop), "SQLS-0119", "RoleKind::Admin");
    for statement in [
        r#"select sqlstreams.produce('orders', '{"number": 60}')"#,
        "select sqlstreams.partition_ensure(1)",
        "update sqlstreams.message_log_1 set payload = '1'",
        "delete from sqlstreams.message_log_1",
        "delete from sqlstreams.consumer_group_config",
        "select nextval('sqlstreams.message_log_1_id_seq')",
        "select setval('sqlstreams.message_log_1_id_seq', 1)",
    ] {
        assert!(is_denied(&run(client.pool(), statement).await), "{statement}");
    }
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_get_their_rights_on_streams_that_are_created_later() {
    let world = World::<Postgres>::new().await;
    let roles = [RoleKind::Produce, RoleKind::Consume, RoleKind::Admin].map(|kind| Role::of(&world, kind));
    let [producing, consuming, admin] = roles;
    let (producing, consuming, admin) = (producing.await, consuming.await, admin.await);
    let gone = Role::of(&world, RoleKind::Produce).await;
    drop(gone);

    let client = admin.client().await;
    client.producer::<Order>().await.expect("an admin registers a stream, also with a granted role gone");
    produced(&producing.client().await, 0..5).await.expect("a producing role may produce at once");
    produced(&client, 5..10).await.expect("an admin may produce");
    for (numbered, role) in [(0..10, &consuming), (10..15, &admin)] {
        let count = usize::try_from(numbered.end - numbered.start).expect("a number");
        let client = role.client().await;
        let (sender, mut calls) = unbounded_channel();
        let running = start(telling::<All>(client.consumer(), &sender));
        if numbered.start > 0 {
            produced(&producing.client().await, numbered.clone()).await.expect("more");
        }
        assert_eq!(numbers(&take(&mut calls, count).await), numbered.collect::<Vec<_>>());
        running.stop().await;
        client.close().await;
    }
    refused(client.migrate().await, "SQLS-0114", "as the installation's owner");
    let granting = run(client.pool(), "select sqlstreams.grant_role(current_user, 'consume')").await;
    assert!(is_denied(&granting), "granting is the owner's: {granting:?}");
}

#[tokio::test]
async fn a_role_without_grants_is_told_which_there_are() {
    let world = World::<Postgres>::new().await;
    world.producer::<Order>().await;
    let role = Role::new(world.client.pool(), &world.url()).await;
    let client = role.client().await;
    refused(produced(&client, 0..1).await, "SQLS-0114", "RoleKind::Produce, RoleKind::Consume or RoleKind::Admin");
}

#[tokio::test]
async fn granting_twice_or_several_kinds_is_safe_and_revoking_takes_everything_back() {
    let world = World::<Postgres>::new().await;
    world.producer::<Order>().await;
    let role = Role::of(&world, RoleKind::Produce).await;
    for kind in [RoleKind::Produce, RoleKind::Consume, RoleKind::Consume] {
        world.execute(&world.client.grants(kind, &role.name)).await;
    }
    assert_eq!(world.number("select count(*) from {}role_grant").await, 2);
    let client = role.client().await;
    produced(&client, 0..3).await.expect("it may produce");
    client.position::<All>().await.expect("it may consume");

    let revoke = format!("select sqlstreams.revoke_role('{}')", role.name.replace('\'', "''"));
    world.execute(&revoke).await;
    world.execute(&revoke).await;
    assert_eq!(world.number("select count(*) from {}role_grant").await, 0);
    refused(produced(&client, 3..4).await, "SQLS-0114", "RoleKind::Produce");
    world.producer::<Bill>().await;
    // A role that has any right left, also on the new stream, can't be dropped.
    world.execute(&format!("drop role {}", role.identifier())).await;
}

#[tokio::test]
async fn a_grant_to_nobody_to_everybody_or_of_nothing_is_refused() {
    let world = World::<Postgres>::new().await;
    for (role, kind) in [("nobody, really", "produce"), ("public", "produce"), ("postgres", "everything")] {
        let grant = run(world.client.pool(), &format!("select sqlstreams.grant_role('{role}', '{kind}')")).await;
        assert!(grant.is_err(), "{role} {kind}");
        assert!(!is_denied(&grant), "{role} {kind}");
    }
    assert_eq!(world.number("select count(*) from {}role_grant").await, 0);
}

#[tokio::test]
async fn partitions_are_closed_to_every_role() {
    let world = World::<Postgres>::new().await;
    world.client.producer_with::<Order>(10).await.expect("the owner registers the stream");
    let roles = [Role::of(&world, KINDS[0]).await, Role::of(&world, KINDS[1]).await, Role::of(&world, KINDS[2]).await];
    produced(&world.client, 0..50).await.expect("a batch");
    for (kind, role) in KINDS.iter().zip(&roles) {
        let pool = role.pool().await;
        let readable = run(&pool, "select id from sqlstreams.message_log_1").await;
        assert!(readable.is_ok(), "{kind:?}: through the parent: {readable:?}");
        for leaf in (0..=7).map(|number| format!("sqlstreams.message_log_1_{number}")) {
            let any = format!(
                "has_table_privilege('{leaf}', 'select, insert, update, delete, truncate, references, trigger') or \
                 has_any_column_privilege('{leaf}', 'select, insert, update, references')"
            );
            let any: bool =
                sqlx::query_scalar(AssertSqlSafe(format!("select {any}"))).fetch_one(&pool).await.expect(&leaf);
            assert!(!any, "{kind:?} has a right on {leaf}");
            assert!(is_denied(&run(&pool, &format!("select id from {leaf}")).await), "{kind:?} {leaf}");
        }
    }
}

/// Without a right on the sequence its function answers null or an error, by version: claims would stand still.
#[tokio::test]
async fn a_consuming_role_sees_the_head() {
    let world = World::<Postgres>::new().await;
    let last = produced(&world.client, 0..5).await.expect("a batch")[4];
    let role = Role::of(&world, RoleKind::Consume).await;
    let pool = role.pool().await;
    let head = "select pg_sequence_last_value('sqlstreams.message_log_1_id_seq')";
    assert_eq!(sqlx::query_scalar::<_, Option<i64>>(head).fetch_one(&pool).await.expect("the head"), Some(last.0));
    world.execute(&format!("revoke all on sequence {{}}message_log_1_id_seq from {}", role.identifier())).await;
    let without = sqlx::query_scalar::<_, Option<i64>>(head).fetch_one(&pool).await;
    assert!(!matches!(without, Ok(Some(_))), "the grant is what shows it: {without:?}");
}

/// Who runs each statement of the engine. A new one has its place here, and its rights in `stream_grant` or `grant_role`.
fn runners() -> BTreeMap<&'static str, &'static [RoleKind]> {
    use RoleKind::{Admin, Consume, Produce};
    let all: &[RoleKind] = &[Produce, Consume, Admin];
    let (produce, consume): (&[RoleKind], &[RoleKind]) = (&[Produce, Admin], &[Consume, Admin]);
    let (admin, owner): (&[RoleKind], &[RoleKind]) = (&[Admin], &[]);
    BTreeMap::from([
        ("binding_hold", consume),
        ("binding_list", consume),
        ("binding_lock", consume),
        ("binding_replace", consume),
        ("claim_take", consume),
        ("connection_look", all),
        ("connection_prepare", all),
        ("cursor_advance", consume),
        ("cursor_create", consume),
        ("cursor_observe", consume),
        ("cursor_position", consume),
        ("cursor_stall", all),
        ("delayed_cancel", produce),
        ("delayed_heads", all),
        ("delayed_promote", admin),
        ("delivery_append", consume),
        ("delivery_list", consume),
        ("exception_due", consume),
        ("exception_return", consume),
        ("exception_settle", consume),
        ("exception_take", consume),
        ("group_create", consume),
        ("group_gate", consume),
        ("group_lock", consume),
        ("group_update", consume),
        ("idempotency_sweep", admin),
        ("key_gate", consume),
        ("key_gate_look", consume),
        ("key_ticket", consume),
        ("lane_bury", consume),
        ("lane_end", consume),
        ("lane_list", consume),
        ("lane_move", consume),
        ("lane_read", consume),
        ("lease_find", consume),
        ("lease_reclaim", consume),
        ("lease_report", consume),
        ("lease_return", consume),
        ("lease_settle", consume),
        ("letter_count", consume),
        ("letter_discard", consume),
        ("letter_list", consume),
        ("letter_read", consume),
        ("letter_redrive", consume),
        ("message_produce", produce),
        ("message_produce_in", produce),
        ("message_produce_with", produce),
        ("message_produce_with_find", produce),
        ("message_produce_with_first", admin),
        ("message_read", consume),
        ("migration_list", all),
        ("migration_lock", all),
        ("migration_record", owner),
        ("parked_take", consume),
        ("partition_ensure", produce),
        ("presence_enter", consume),
        ("presence_leave", consume),
        ("presence_renew", consume),
        ("replay_count", consume),
        ("replay_exception", consume),
        ("replay_gate", consume),
        ("replay_lane", consume),
        ("replay_lease", consume),
        ("replay_lock", consume),
        ("replay_move", consume),
        ("replay_parked", consume),
        ("replay_pause", consume),
        ("replay_seek", consume),
        ("role_grant", owner),
        ("stream_create", admin),
        ("stream_find", all),
        ("stream_version_create", admin),
        ("wake_send", all),
        ("worker_declare", admin),
        ("worker_list", admin),
        ("worker_look", admin),
        ("worker_take", admin),
        ("worker_target", admin),
    ])
}

#[tokio::test]
async fn each_statement_is_granted_to_those_who_run_it_and_to_nobody_else() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let mut roles = Vec::new();
    for kind in KINDS {
        let role = Role::new(installation.pool(), installation.database().url()).await;
        let grant = format!("select sqlstreams.grant_role('{}', '{}')", role.name.replace('\'', "''"), kind.as_str());
        installation.execute(&grant).await;
        roles.push((kind, role.pool().await, role));
    }
    let runners = runners();
    let mut seen = Vec::new();
    for (name, text) in installation.postgres().statements(stream) {
        // What no plan is made for is the owner's, or needs no right.
        if ["migration_schema", "migration_table"].contains(&name) || name.starts_with("transaction_") {
            continue;
        }
        seen.push(name);
        let expected = runners.get(name).unwrap_or_else(|| panic!("{name} has no place in the list of who runs it"));
        for (kind, pool, _) in &roles {
            let planned = plan(pool, text.as_str()).await;
            assert!(planned.is_ok() || is_denied(&planned), "{name} as {kind:?}: {planned:?}");
            assert_eq!(planned.is_ok(), expected.contains(kind), "{name} as {kind:?}: {planned:?}");
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, runners.into_keys().collect::<Vec<_>>(), "the list names no statement that is gone");
}

/// Plans a statement and checks its rights, without running it.
async fn plan(pool: &PgPool, statement: &str) -> Result<(), sqlx::Error> {
    let mut connection = pool.acquire().await?;
    let prepare = format!("set plan_cache_mode = force_generic_plan; deallocate all; prepare planned as {statement}");
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *connection).await?;
    let count = "select cardinality(parameter_types) from pg_prepared_statements where name = 'planned'";
    let count: i32 = sqlx::query_scalar(count).persistent(false).fetch_one(&mut *connection).await?;
    let nulls = vec!["null"; usize::try_from(count).unwrap_or_default()].join(", ");
    let arguments = if nulls.is_empty() { String::new() } else { format!("({nulls})") };
    let explain = format!("explain execute planned{arguments}");
    sqlx::raw_sql(AssertSqlSafe(explain)).execute(&mut *connection).await.map(drop)
}
