//! Ids and transaction ids go back with a crash, and what is remembered of them must go back as well.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlstreams_runtime::Client;
use sqlstreams_runtime::backend::{Backend, ClaimRow};
use sqlstreams_runtime::message::NewMessage;
use sqlx::{Connection, PgConnection, Postgres};

use super::{Application, Numbers, blocking, forgetful, settled};
use crate::fence::declared::NoteReaders;
use crate::fence::{Field, execute};
use crate::harness::{PATIENCE, claim_params, postgres_on, read_params};
use crate::support::cluster::{Cluster, Mode};

const ROUNDS: u64 = 3;
/// Until one bites: what the server writes to its disk by itself, and when, is its own business.
const MOST_ROUNDS: u64 = 15;

fn note(n: u64) -> NewMessage {
    NewMessage { payload: format!(r#"{{"n":{n}}}"#), routing_key: None, message_key: None, headers: None }
}

fn number(payload: Option<&[u8]>) -> u64 {
    let payload: serde_json::Value = serde_json::from_slice(payload.expect("a note has a payload")).expect("JSON");
    payload["n"].as_u64().expect("a note has a number")
}

/// Durable produces through the engine; those that a broken connection left in doubt don't count.
async fn produce(field: &Field, numbers: &Numbers, count: usize) -> Vec<(u64, i64)> {
    let mut produced = Vec::new();
    while produced.len() < count {
        let n = numbers.next();
        if let Ok(ids) = field.backend().message_produce(field.stream, 1, 0, &[note(n)]).await {
            produced.push((n, ids[0].0));
        }
    }
    produced
}

/// Messages that a session without durable commits produces, each in a transaction of its own.
async fn produce_volatile(connection: &mut PgConnection, numbers: &Numbers, count: usize) {
    execute(connection, "set synchronous_commit = off").await;
    for _ in 0..count {
        let n = numbers.next();
        execute(connection, &format!("select sqlstreams.produce('notes', '{{\"n\": {n}}}')")).await;
    }
}

/// A transaction that draws ids and does not end.
async fn open(connection: &mut PgConnection, numbers: &Numbers, count: usize) {
    execute(connection, "begin").await;
    for _ in 0..count {
        let n = numbers.next();
        execute(connection, &format!("select sqlstreams.produce('notes', '{{\"n\": {n}}}')")).await;
    }
}

/// One claim as the engine makes it: after a lost answer the lease is looked for.
async fn claim(field: &Field) -> ClaimRow {
    loop {
        let params = claim_params(field.stream, field.group, field.presence, 50);
        match field.backend().claim_take(&params).await {
            Ok(row) => return row,
            Err(err) if err.outcome_known() => {}
            Err(_) => loop {
                match field.backend().lease_find(field.stream, params.token).await {
                    Ok(Some(lease)) => return ClaimRow { low: lease.low, high: lease.high, ..ClaimRow::default() },
                    Ok(None) => break,
                    Err(_) => {}
                }
            },
        }
    }
}

/// Claims and reads; the numbers of the messages.
async fn claim_and_read(field: &Field) -> (ClaimRow, Vec<u64>) {
    let row = claim(field).await;
    let messages = loop {
        if let Ok(messages) = field.backend().message_read(&read_params(field.stream, row.low, row.high)).await {
            break messages;
        }
    };
    let numbers = messages.iter().map(|message| number(message.payload.as_deref())).collect();
    (row, numbers)
}

async fn drain(field: &Field) -> Vec<u64> {
    let mut all = Vec::new();
    let draining = async {
        loop {
            let (row, numbers) = claim_and_read(field).await;
            all.extend(numbers);
            if !row.contended && !row.pending && row.high >= row.head {
                return;
            }
            // A connection that broke costs an attempt.
            let _ = field.backend().cursor_observe(field.stream, &[field.group]).await;
        }
    };
    tokio::time::timeout(PATIENCE, draining).await.expect("the group reaches the head");
    all
}

/// What a process could keep in its memory: the head, and a transaction id that is younger.
#[derive(Clone, Copy, Debug)]
struct Memory {
    head: i64,
    xid: i64,
}

async fn remember(field: &Field, connection: &mut PgConnection) -> Memory {
    let head = field.drawn().await;
    let xid = sqlx::query_scalar("select pg_current_xact_id()::text::bigint").fetch_one(connection).await;
    Memory { head, xid: xid.expect("a transaction has an id") }
}

/// Uses transaction ids up until a proof from memory would hold.
async fn outlive(connection: &mut PgConnection, memory: Memory) {
    let burn = "do $$ begin for i in 1 .. 100 loop perform pg_current_xact_id(); commit; end loop; end $$";
    loop {
        execute(connection, burn).await;
        let xmin = "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
        let xmin: i64 = sqlx::query_scalar(xmin).fetch_one(&mut *connection).await.expect("a snapshot has an xmin");
        if xmin >= memory.xid {
            return;
        }
    }
}

/// One round; whether a proof from memory would have lost a message of it.
async fn crash(field: &Field, cluster: &Arc<Cluster>, dice: &mut StdRng, numbers: &Numbers) -> bool {
    let url = field.installation.database().url().to_owned();
    let mut acknowledged = produce(field, numbers, dice.random_range(1..5)).await;
    let mut read = Vec::new();
    let mut session = field.connection("a session without durable commits").await;
    let mut producers = Vec::new();
    for _ in 0..3 {
        let mut producer = field.connection("an open producer").await;
        open(&mut producer, numbers, dice.random_range(1..30)).await;
        producers.push(producer);
        produce_volatile(&mut session, numbers, dice.random_range(0..40)).await;
        if dice.random_bool(0.3) {
            acknowledged.extend(produce(field, numbers, 1).await);
        }
        for _ in 0..dice.random_range(0..4) {
            read.extend(claim_and_read(field).await.1);
            let _ = field.backend().cursor_observe(field.stream, &[field.group]).await;
        }
    }
    // Beyond what the last durable commit took along.
    produce_volatile(&mut session, numbers, 80).await;
    read.extend(claim_and_read(field).await.1);
    let memory = remember(field, &mut session).await;
    blocking(cluster, |cluster| cluster.stop(Mode::Immediate)).await;
    drop((session, producers));
    blocking(cluster, Cluster::start_again).await;

    let mut connection = crate::fence::connection(&url, "after the crash").await;
    outlive(&mut connection, memory).await;
    let after = produce(field, numbers, 10).await;
    connection.close().await.expect("a connection can be closed");
    let again = drain(field).await;
    for (n, _) in &after {
        assert_eq!(again.iter().filter(|read| *read == n).count(), 1, "message {n} was produced after the crash");
    }
    for (n, id) in acknowledged {
        assert!(read.contains(&n) || again.contains(&n), "message {n} was acknowledged with id {id} before the crash");
    }
    after.iter().any(|(_, id)| *id <= memory.head)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_immediate_stop_with_open_producers_loses_nothing_produced_afterwards() {
    let cluster = Arc::new(Cluster::start(forgetful()));
    let field = Field::on(postgres_on(&cluster).await).await;
    let numbers = Numbers::default();
    let mut memory_loses = 0;
    for seed in 0..MOST_ROUNDS {
        if seed >= ROUNDS && memory_loses > 0 {
            break;
        }
        let mut dice = StdRng::seed_from_u64(seed);
        memory_loses += usize::from(crash(&field, &cluster, &mut dice, &numbers).await);
    }
    assert!(memory_loses > 0, "no id went back below what a process could remember: the test does not bite");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_runs_across_an_immediate_stop_loses_nothing_produced_afterwards() {
    let cluster = Arc::new(Cluster::start(forgetful()));
    let url = cluster.url("postgres");
    let client = Client::<Postgres>::connect(&url).await.expect("the server takes connections");
    // Maintenance commits durably now and then, and takes along what should be lost.
    let application = Application::with(client, |consumer| consumer.maintenance(false)).await;
    let numbers = Numbers::default();
    let mut went_back = 0;
    for seed in 0..MOST_ROUNDS {
        if seed >= ROUNDS && went_back > 0 {
            break;
        }
        let mut dice = StdRng::seed_from_u64(100 + seed);
        let before = application.produce(&numbers).await.0;
        let mut session = crate::fence::connection(&url, "a session without durable commits").await;
        let mut producer = crate::fence::connection(&url, "an open producer").await;
        produce_volatile(&mut session, &numbers, dice.random_range(1..60)).await;
        open(&mut producer, &numbers, dice.random_range(1..30)).await;
        produce_volatile(&mut session, &numbers, 80).await;
        // The consumer has seen them, as far as the open producer lets it.
        application.handled.all(&[before]).await;
        let drawn = "select pg_sequence_last_value('sqlstreams.message_log_1_id_seq')";
        let head: i64 = sqlx::query_scalar(drawn).fetch_one(&mut session).await.expect("a sequence");
        blocking(&cluster, |cluster| cluster.stop(Mode::Immediate)).await;
        drop((session, producer));
        blocking(&cluster, Cluster::start_again).await;
        let mut after = Vec::new();
        for _ in 0..20 {
            after.push(application.produce(&numbers).await);
        }
        went_back += usize::from(after[0].1.0 <= head);
        let after: Vec<_> = after.into_iter().map(|(n, _)| n).collect();
        application.handled.all(&after).await;
        let times = application.handled.times();
        let twice: Vec<_> = after.iter().filter(|n| times[n] != 1).collect();
        assert!(twice.is_empty(), "produced after the crash and handled again: {twice:?}");
    }
    settled::<NoteReaders>(&application.client).await;
    assert!(went_back > 0, "no id went back: the test does not bite");
    application.end().await;
}
