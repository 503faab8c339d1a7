//! Producers that commit late, in random interleavings.
//!
//! A gate in the log holds a producer back between its id and its row, for as long as a gatekeeper likes.
//! What a seed decides is the same in each run; how the backends interleave is not.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlstreams_runtime::backend::{Backend, ClaimParams, ClaimRow};
use sqlstreams_runtime::message::NewMessage;
use sqlx::{AssertSqlSafe, Connection, PgPool, Row};
use tokio::task::JoinSet;

use super::{Field, NOTHING, bare, end, execute, old_transaction};
use crate::harness::{PATIENCE, claim_params, ids, message, read_params};

const PRODUCERS: u64 = 7;
const TURNS: usize = 16;
const CLAIMERS: u64 = 3;
const GATES: u64 = 3;

/// How the producers append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Single,
    Batch,
    Transaction,
    Function,
    /// A plain INSERT, which owns no transaction id before its message id.
    Bare,
}

/// How the group claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claims {
    Real,
    /// Up to the newest drawn id, whoever is still writing below it.
    Unproven,
}

#[derive(Debug, Default)]
struct Outcome {
    committed: Mutex<BTreeSet<i64>>,
    read: Mutex<Vec<i64>>,
}

impl Outcome {
    fn lost(&self) -> Vec<i64> {
        let read = self.read.lock().expect("no producer panicked");
        let read: BTreeSet<_> = read.iter().copied().collect();
        self.committed.lock().expect("no producer panicked").difference(&read).copied().collect()
    }

    /// Every committed id was read once, and no other one was.
    fn check(&self, seed: u64) {
        let mut read = self.read.lock().expect("no claimer panicked").clone();
        read.sort_unstable();
        let committed: Vec<_> = self.committed.lock().expect("no producer panicked").iter().copied().collect();
        assert!(committed.len() > 50, "the test produced too little: {}", committed.len());
        assert_eq!(read, committed, "seed {seed}: read on the left, committed on the right");
    }
}

/// Half of the ids wait at a gate before their row is there; some fail there.
const GATE: &str = "
    create function gate() returns trigger language plpgsql as $$
    declare
        dice bigint := abs(hashint8extended(new.id, SEED) % 1000);
    begin
        if dice < 500 then
            perform pg_advisory_lock_shared(dice % GATES);
            perform pg_advisory_unlock_shared(dice % GATES);
        end if;
        if dice % 16 = 0 then
            raise exception 'refused at the gate';
        end if;
        return new;
    end $$;
    create trigger gate before insert on LOG for each row execute function gate();";

/// Opens and closes a gate until the producers are done; closed for at most `closed` exchanges.
async fn keep(field: Arc<Field>, gate: u64, closed: u32, seed: u64, done: Arc<AtomicBool>) {
    let mut dice = StdRng::seed_from_u64(seed * 1000 + 100 + gate);
    let mut connection = field.connection("gatekeeper").await;
    while !done.load(Ordering::Acquire) {
        execute(&mut connection, &format!("select pg_advisory_lock({gate})")).await;
        for _ in 0..dice.random_range(0..closed) {
            execute(&mut connection, "select 'still closed'").await;
        }
        execute(&mut connection, &format!("select pg_advisory_unlock({gate})")).await;
        for _ in 0..dice.random_range(0..4) {
            execute(&mut connection, "select 'still open'").await;
        }
    }
}

async fn produce(field: Arc<Field>, way: Way, producer: u64, seed: u64, outcome: Arc<Outcome>) {
    let mut dice = StdRng::seed_from_u64(seed * 1000 + producer);
    for _ in 0..TURNS {
        let batch: Vec<NewMessage> = (0..dice.random_range(2..5)).map(message).collect();
        let committed = match way {
            Way::Single => produced(&field, &[message(0)]).await,
            Way::Batch => produced(&field, &batch).await,
            Way::Bare => by_hand(&field).await,
            Way::Transaction => in_transaction(&field, &mut dice, false).await,
            Way::Function => in_transaction(&field, &mut dice, true).await,
        };
        outcome.committed.lock().expect("no producer panicked").extend(committed);
    }
}

/// The ids of one produce; none when the gate refused it.
async fn produced(field: &Field, messages: &[NewMessage]) -> Vec<i64> {
    let ids = field.backend().message_produce(field.stream, 1, 0, messages).await;
    ids.map(bare).unwrap_or_default()
}

async fn by_hand(field: &Field) -> Vec<i64> {
    let insert = format!(
        "insert into {} (schema_version, codec, payload) values (1, 0, '{{}}') returning id",
        field.table("message_log")
    );
    let id = sqlx::query_scalar(AssertSqlSafe(insert)).fetch_one(field.installation.pool()).await;
    id.into_iter().collect()
}

/// Some messages in one transaction, which dawdles and then commits or rolls back.
async fn in_transaction(field: &Field, dice: &mut StdRng, function: bool) -> Vec<i64> {
    let mut tx = field.installation.pool().begin().await.expect("a transaction can begin");
    let mut drawn = Vec::new();
    for _ in 0..dice.random_range(1..4) {
        let id = if function {
            let produce = "select sqlstreams.produce('notes', '{}')";
            sqlx::query_scalar::<_, i64>(produce).fetch_one(&mut *tx).await.ok()
        } else {
            let ids = field.backend().produce_in(&mut tx, field.stream, 1, 0, &[message(0)]).await;
            ids.ok().map(|ids| ids[0].0)
        };
        let Some(id) = id else {
            tx.rollback().await.expect("a failed transaction can be rolled back");
            return Vec::new();
        };
        drawn.push(id);
        for _ in 0..dice.random_range(0..10) {
            sqlx::query("select 'dawdling'").execute(&mut *tx).await.expect("a transaction can dawdle");
        }
    }
    if dice.random_bool(0.2) {
        tx.rollback().await.expect("a transaction can be rolled back");
        return Vec::new();
    }
    tx.commit().await.expect("a transaction can commit");
    drawn
}

/// Claims, reads and settles until the producers are done and every drawn id is passed.
async fn claim(
    field: Arc<Field>,
    claims: Claims,
    claimer: u64,
    seed: u64,
    done: Arc<AtomicBool>,
    outcome: Arc<Outcome>,
) {
    let mut dice = StdRng::seed_from_u64(seed * 1000 + 500 + claimer);
    let backend = field.installation.another().await;
    let text = field.statement("claim_take");
    let unproven = text.replace("greatest(\n            c.proven_head,", "greatest(\n            h.id, c.proven_head,");
    assert_ne!(text, unproven, "the test knows how the claim proves");
    let presence = field.installation.presence().await;
    let deadline = Instant::now() + PATIENCE;
    let mut settled = Vec::new();
    loop {
        let producing = !done.load(Ordering::Acquire);
        let width = dice.random_range(1..30);
        let params = ClaimParams { settled, ..claim_params(field.stream, field.group, presence, width) };
        let row = match claims {
            Claims::Real => backend.claim_take(&params).await.expect("a claim answers"),
            Claims::Unproven => claim_with(field.installation.pool(), &unproven, &params).await,
        };
        settled = Vec::new();
        if row.high > row.low {
            let read = backend.message_read(&read_params(field.stream, row.low, row.high)).await;
            outcome.read.lock().expect("no claimer panicked").extend(ids(&read.expect("a range can be read")));
            settled.push(params.token);
        } else if !producing && !row.contended && row.high >= row.head {
            return;
        } else if row.pending && dice.random_bool(0.3) {
            backend.cursor_observe(field.stream, &[field.group]).await.expect("open producers can be observed");
        }
        assert!(Instant::now() < deadline, "claimer {claimer} does not reach the head: {row:?}");
    }
}

/// The claim's statement, or a variant of it, as the engine runs it.
async fn claim_with(pool: &PgPool, statement: &str, params: &ClaimParams) -> ClaimRow {
    let settled: Vec<_> = params.settled.iter().map(|token| token.0).collect();
    let claim = sqlx::query(AssertSqlSafe(statement.to_owned())).bind(params.group.0).bind(params.width);
    let row = claim.bind(params.token.0).bind(params.presence.0).bind(settled).bind("off").fetch_one(pool).await;
    let row = row.expect("a claim answers");
    ClaimRow {
        low: row.get(0),
        high: row.get(1),
        head: row.get(2),
        proven: row.get(3),
        contended: row.get(4),
        pending: row.get(5),
        missing: row.get(6),
        epoch: row.get(7),
        replay_until: row.get(8),
    }
}

/// One run: producers, gatekeepers and claimers, side by side.
async fn run(way: Way, claims: Claims, closed: u32, seed: u64) -> Arc<Outcome> {
    let field = Arc::new(Field::new().await);
    let gate = GATE.replace("SEED", &seed.to_string()).replace("GATES", &GATES.to_string());
    field.installation.execute(&gate.replace("LOG", &field.table("message_log"))).await;
    // In every other run only the exact proof can pass.
    let old = match seed % 2 {
        0 => Some(old_transaction(field.installation.database().url()).await),
        _ => None,
    };
    let outcome = Arc::new(Outcome::default());
    let done = Arc::new(AtomicBool::new(false));
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        producers.spawn(produce(field.clone(), way, producer, seed, outcome.clone()));
    }
    let mut others = JoinSet::new();
    for gate in 0..GATES {
        others.spawn(keep(field.clone(), gate, closed, seed, done.clone()));
    }
    for claimer in 0..CLAIMERS {
        others.spawn(claim(field.clone(), claims, claimer, seed, done.clone(), outcome.clone()));
    }
    producers.join_all().await;
    done.store(true, Ordering::Release);
    others.join_all().await;
    if let Some(old) = old {
        end(old, "rollback").await;
    }
    outcome
}

/// Runs a way or a claim that breaks the rule until it loses a message.
async fn loses(way: Way, claims: Claims) -> bool {
    let started = Instant::now();
    for seed in 1.. {
        // Longer closed each time: how backends are scheduled is up to the machine.
        if !run(way, claims, 12 * seed, u64::from(seed)).await.lost().is_empty() {
            return true;
        }
        if started.elapsed() > PATIENCE {
            return false;
        }
    }
    false
}

mod a_producer_that_commits_late_is_never_skipped {
    use super::*;

    async fn never_skipped(way: Way) {
        for seed in [1, 2] {
            run(way, Claims::Real, 12, seed).await.check(seed);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn by_single_produce() {
        never_skipped(Way::Single).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn by_batch() {
        never_skipped(Way::Batch).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn in_a_callers_transaction() {
        never_skipped(Way::Transaction).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn through_the_sql_function() {
        never_skipped(Way::Function).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_without_a_proof_loses_messages_in_these_interleavings() {
    assert!(loses(Way::Transaction, Claims::Unproven).await, "the interleavings don't bite");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_insert_loses_messages_in_these_interleavings() {
    assert!(loses(Way::Bare, Claims::Real).await, "the interleavings don't bite");
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_leaves_a_hole_and_nothing_else() {
    let field = Field::new().await;
    let mut producer = field.connection("producer").await;
    let mut tx = producer.begin().await.expect("a transaction can begin");
    let kept = field.produce_in(&mut tx).await;
    sqlx::query("savepoint s").execute(&mut *tx).await.expect("a savepoint can be set");
    let undone = field.produce_in(&mut tx).await;
    sqlx::query("rollback to savepoint s").execute(&mut *tx).await.expect("a savepoint can be rolled back to");
    let after = field.produce(1).await[0];
    assert_eq!(field.attempts().await, NOTHING, "the transaction is still open");
    let last = field.produce_in(&mut tx).await;
    tx.commit().await.expect("a transaction can commit");
    assert!(kept < undone && undone < after && after < last);
    assert_eq!(field.drain().await, [kept, after, last]);
}

#[tokio::test]
async fn a_producer_whose_first_message_is_undone_holds_its_later_ones_back() {
    let field = Field::new().await;
    let mut producer = field.connection("producer").await;
    let mut tx = producer.begin().await.expect("a transaction can begin");
    // The lock that names a producer goes with the savepoint; the next message takes it again.
    sqlx::query("savepoint s").execute(&mut *tx).await.expect("a savepoint can be set");
    field.produce_in(&mut tx).await;
    sqlx::query("rollback to savepoint s").execute(&mut *tx).await.expect("a savepoint can be rolled back to");
    assert_eq!(field.drain().await, NOTHING, "nothing can come any more");
    sqlx::query("savepoint s").execute(&mut *tx).await.expect("a savepoint can be set");
    let inside = field.produce_in(&mut tx).await;
    sqlx::query("release savepoint s").execute(&mut *tx).await.expect("a savepoint can be released");
    let beside = field.produce(1).await[0];
    assert_eq!(field.attempts().await, NOTHING);
    tx.commit().await.expect("a transaction can commit");
    assert_eq!(field.drain().await, [inside, beside]);
}
