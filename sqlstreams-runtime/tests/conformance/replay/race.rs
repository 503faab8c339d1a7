//! What happens at the same moment as a move, on Postgres: SQLite's writers are serial.

use std::time::Instant;

use sqlstreams_runtime::Error;
use sqlstreams_runtime::backend::{ExceptionNext, ReplayRow, ReplayWay, SettleParams};
use sqlstreams_runtime::identity::MessageId;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::task::JoinHandle;

use super::{BACK, KEEPING, claim, cursor, dead, go, handle, id, lane, leases, params, settle};
use crate::exception::{FAR, MINUTE, NOW, Setting};
use crate::harness::{self, Installation, PATIENCE, claim_params, retry, settle_params, trouble};

/// A transaction of the test's own that something is made to wait for.
struct Blocker(PgConnection);

impl Blocker {
    async fn new(installation: &Installation, statements: String) -> Self {
        let mut connection = PgConnection::connect(installation.database().url()).await.expect("a connection");
        let statements = format!("begin; {statements}");
        connection.execute(sqlx::raw_sql(AssertSqlSafe(statements))).await.expect("a test's own statement runs");
        Self(connection)
    }

    async fn end(mut self, how: &'static str) {
        self.0.execute(how).await.expect("a transaction ends");
    }
}

/// Waits until so many sessions wait for locks.
async fn waiting(installation: &Installation, count: i64) {
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let deadline = Instant::now() + PATIENCE;
    while installation.number(waits).await < count {
        assert!(Instant::now() < deadline, "nothing waits for a lock");
    }
}

/// Starts a move of the group.
fn going(setting: &Setting<'_>, first: i64, way: ReplayWay) -> JoinHandle<Result<ReplayRow, Error>> {
    let (backend, params) = (setting.installation.backend.clone(), params(setting, id(first), way));
    tokio::spawn(async move { backend.replay_move(&params).await })
}

async fn gone(moving: JoinHandle<Result<ReplayRow, Error>>) -> ReplayRow {
    let row = moving.await.expect("no panic").expect("a move");
    assert!(row.moved, "{row:?}");
    row
}

/// A lease with this token, so that nobody else can write one.
fn lease_row(setting: &Setting<'_>, token: uuid::Uuid) -> String {
    let table = setting.installation.table_of("claim_lease", setting.stream);
    let row = format!("'{token}', {}, 0, 0, 0", setting.group);
    format!("insert into {table} (token, consumer_group_id, seq, low, high) values ({row})")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_waits_for_a_claim_and_takes_its_lease() {
    let installation = harness::postgres().await;
    let setting = Setting::new(&installation).await;
    handle(&setting, 20, Vec::new()).await;
    super::prove(&setting).await;
    let params = claim_params(setting.stream, setting.group, setting.presence, 5);
    let blocker = Blocker::new(&installation, lease_row(&setting, params.token.0)).await;
    let (backend, claiming) = (installation.backend.clone(), params.clone());
    let claiming = tokio::spawn(async move { backend.claim_take(&claiming).await });
    waiting(&installation, 1).await;
    let moving = going(&setting, 11, BACK);
    waiting(&installation, 2).await;
    blocker.end("rollback").await;
    let claimed = claiming.await.expect("no panic").expect("a claim");
    assert_eq!((claimed.low, claimed.high), (20, 25));
    let row = gone(moving).await;
    assert_eq!((row.claimed, row.target, row.touched.ranges), (25, 10, 1), "it sees the claim that it waited for");
    assert!(!settle(&setting, params.token, vec![dead(21)]).await);
    let (_, row) = claim(&setting, 100).await;
    assert_eq!((row.low, row.high, row.replay_until), (10, 40, Some(25)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_waits_for_a_move_takes_nothing_from_before_it() {
    let installation = harness::postgres().await;
    let setting = Setting::new(&installation).await;
    handle(&setting, 20, vec![trouble(15, retry(MINUTE))]).await;
    super::prove(&setting).await;
    let queue = installation.table_of("exception_queue", setting.stream);
    let row = format!("select from {queue} where message_id = 15 for update");
    let blocker = Blocker::new(&installation, row).await;
    let moving = going(&setting, 11, BACK);
    waiting(&installation, 1).await;
    let params = claim_params(setting.stream, setting.group, setting.presence, 5);
    let backend = installation.backend.clone();
    let claiming = tokio::spawn(async move { backend.claim_take(&params).await });
    waiting(&installation, 2).await;
    blocker.end("rollback").await;
    gone(moving).await;
    let claimed = claiming.await.expect("no panic").expect("a claim");
    assert!(claimed.contended && claimed.low == claimed.high, "{claimed:?}");
    let (_, row) = claim(&setting, 5).await;
    assert_eq!((row.low, row.high, row.epoch), (10, 15, 1));
}

/// What the settlement records becomes visible while the move waits for its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_waits_for_a_settlement_and_forgets_what_it_recorded() {
    let installation = harness::postgres().await;
    let setting = Setting::new(&installation).await;
    let (token, _) = claim(&setting, 20).await;
    let queue = installation.table_of("exception_queue", setting.stream);
    let row = format!("{}, 15, 'ready', 1", setting.group);
    let columns = "consumer_group_id, message_id, status, schema_version";
    let blocker = Blocker::new(&installation, format!("insert into {queue} ({columns}) values ({row})")).await;
    let exceptions = vec![trouble(5, retry(MINUTE)), trouble(15, retry(MINUTE)), lane("a", 4, 14), lane("b", 16, 18)];
    let parked = vec![(2, 0, 20)];
    let settling = SettleParams { exceptions, parked, now: Some(NOW), ..settle_params(setting.stream, token) };
    let backend = installation.backend.clone();
    let settling = tokio::spawn(async move { backend.lease_settle(&settling).await });
    waiting(&installation, 1).await;
    let moving = going(&setting, 11, BACK);
    waiting(&installation, 2).await;
    blocker.end("rollback").await;
    assert!(settling.await.expect("no panic").expect("a settlement"), "it came first");
    let touched = gone(moving).await.touched;
    assert_eq!((touched.ranges_cut, touched.waiting, touched.lanes, touched.lanes_cut), (0, 1, 1, 1));
    assert_eq!(touched.parked_cut, 1);
    assert_eq!(setting.troubles().await, ["4 ready 1/1/0/0", "5 ready 1/1/0/0"]);
    assert_eq!(installation.parked(setting.stream, setting.group).await, ["2 (0, 10]"]);
    assert!(leases(&setting).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_waits_for_a_move_changes_nothing() {
    let installation = harness::postgres().await;
    let setting = Setting::new(&installation).await;
    handle(&setting, 10, vec![trouble(8, retry(MINUTE))]).await;
    let (above, _) = claim(&setting, 10).await;
    let queue = installation.table_of("exception_queue", setting.stream);
    let blocker = Blocker::new(&installation, format!("select from {queue} where message_id = 8 for update")).await;
    let moving = going(&setting, 6, BACK);
    waiting(&installation, 1).await;
    let exceptions = vec![trouble(15, retry(MINUTE)), dead(16)];
    let settling = SettleParams { exceptions, parked: vec![(2, 10, 20)], ..settle_params(setting.stream, above) };
    let backend = installation.backend.clone();
    let settling = tokio::spawn(async move { backend.lease_settle(&settling).await });
    waiting(&installation, 2).await;
    blocker.end("rollback").await;
    gone(moving).await;
    assert!(!settling.await.expect("no panic").expect("a settlement"), "its range is no more");
    assert!(setting.troubles().await.is_empty());
    assert!(installation.parked(setting.stream, setting.group).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_takes_what_an_exception_take_took_while_it_waited() {
    let installation = harness::postgres().await;
    let setting = Setting::new(&installation).await;
    handle(&setting, 20, vec![trouble(5, retry(MINUTE)), trouble(15, retry(MINUTE))]).await;
    let queue = installation.table_of("exception_queue", setting.stream);
    let token = uuid::Uuid::new_v4();
    let take =
        format!("update {queue} set status = 'inflight', token = '{token}', presence_id = '{}'", setting.presence.0);
    let blocker = Blocker::new(&installation, take).await;
    let moving = going(&setting, 11, BACK);
    waiting(&installation, 1).await;
    blocker.end("commit").await;
    let row = gone(moving).await;
    assert_eq!((row.touched.waiting, row.running), (1, 1), "it ran by then");
    let outcomes = vec![trouble(5, ExceptionNext::Done), dead(15)];
    assert_eq!(setting.settle(sqlstreams_runtime::identity::LeaseToken(token), outcomes).await, [5]);
    assert!(setting.troubles().await.is_empty());
}

/// Without the gate, the move would look while the letter is still dead, and leave it beside the replay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_keeps_letters_waits_for_a_redrive_and_takes_what_it_redrove() {
    let installation = harness::postgres().await;
    let setting = Setting::new(&installation).await;
    handle(&setting, 20, vec![dead(5), dead(15), dead(16)]).await;
    let queue = installation.table_of("exception_queue", setting.stream);
    let gate = format!("select from sqlstreams.consumer_group_config where id = {} for share", setting.group);
    let redrive = format!("update {queue} set status = 'ready', can_run_after = now() where message_id = 15");
    let blocker = Blocker::new(&installation, format!("{gate}; {redrive}")).await;
    let moving = going(&setting, 11, KEEPING);
    waiting(&installation, 1).await;
    blocker.end("commit").await;
    assert_eq!(gone(moving).await.touched.waiting, 1);
    assert_eq!(setting.troubles().await, ["5 dead 1/1/0/0", "16 dead 1/1/0/0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_waits_for_a_move_and_redrives_what_it_left() {
    let installation = harness::postgres().await;
    let setting = Setting::new(&installation).await;
    handle(&setting, 20, vec![dead(5), dead(15), trouble(16, retry(MINUTE))]).await;
    let queue = installation.table_of("exception_queue", setting.stream);
    let blocker = Blocker::new(&installation, format!("select from {queue} where message_id = 16 for update")).await;
    let moving = going(&setting, 11, BACK);
    waiting(&installation, 1).await;
    let backend = installation.backend.clone();
    let letters = harness::letter_params(setting.stream, setting.group);
    let redriving =
        tokio::spawn(async move { backend.letter_redrive(&letters, std::time::Duration::ZERO, Some(NOW)).await });
    waiting(&installation, 2).await;
    blocker.end("rollback").await;
    gone(moving).await;
    let batch = redriving.await.expect("no panic").expect("a redrive");
    assert_eq!((batch.found, batch.changed), (1, 1), "the letter above is no more");
    assert_eq!(setting.troubles().await, ["5 ready 1/0/0/0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_waits_for_who_takes_a_parked_range_and_takes_the_lease() {
    let installation = harness::postgres().await;
    let setting = Setting::new(&installation).await;
    let (token, _) = claim(&setting, 20).await;
    let parked = SettleParams { parked: vec![(2, 0, 20)], ..settle_params(setting.stream, token) };
    assert!(installation.backend.lease_settle(&parked).await.expect("a settlement"));
    let params = claim_params(setting.stream, setting.group, setting.presence, 15);
    let blocker = Blocker::new(&installation, lease_row(&setting, params.token.0)).await;
    let (backend, taking) = (installation.backend.clone(), params.clone());
    let taking = tokio::spawn(async move { backend.parked_take(&taking, &[2]).await });
    waiting(&installation, 1).await;
    let moving = going(&setting, 11, BACK);
    waiting(&installation, 2).await;
    blocker.end("rollback").await;
    let lease = taking.await.expect("no panic").expect("a look").expect("a range");
    assert_eq!((lease.low, lease.high), (0, 15));
    let touched = gone(moving).await.touched;
    assert_eq!((touched.ranges_cut, touched.parked, touched.parked_cut), (1, 1, 0));
    assert_eq!(leases(&setting).await, ["(0, 10]"]);
    assert!(installation.parked(setting.stream, setting.group).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_a_parked_range_after_a_move_gets_what_the_move_left() {
    let installation = harness::postgres().await;
    let setting = Setting::new(&installation).await;
    let (token, _) = claim(&setting, 20).await;
    let exceptions = vec![trouble(15, retry(MINUTE))];
    let parked = SettleParams { exceptions, parked: vec![(2, 0, 20)], ..settle_params(setting.stream, token) };
    assert!(installation.backend.lease_settle(&parked).await.expect("a settlement"));
    let queue = installation.table_of("exception_queue", setting.stream);
    let blocker = Blocker::new(&installation, format!("select from {queue} where message_id = 15 for update")).await;
    let moving = going(&setting, 11, BACK);
    waiting(&installation, 1).await;
    let params = claim_params(setting.stream, setting.group, setting.presence, 100);
    let backend = installation.backend.clone();
    let taking = tokio::spawn(async move { backend.parked_take(&params, &[2]).await });
    waiting(&installation, 2).await;
    blocker.end("rollback").await;
    gone(moving).await;
    let lease = taking.await.expect("no panic").expect("a look").expect("a range");
    assert_eq!((lease.low, lease.high), (0, 10));
}

/// A lane that goes to a message above the place while the move waits for it is above it then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_forgets_a_lane_that_went_on_while_it_waited() {
    let installation = harness::postgres().await;
    let setting = Setting::new(&installation).await;
    handle(&setting, 20, vec![lane("a", 5, 18), lane("b", 6, 19)]).await;
    let queue = installation.table_of("exception_queue", setting.stream);
    let on = format!("update {queue} set message_id = 15 where message_id = 5");
    let group = setting.group;
    let columns = "consumer_group_id, message_id, status, schema_version, message_key, held_to, can_run_after";
    let bury = format!(
        "update {queue} set status = 'dead', held_to = null where message_id = 6;
         insert into {queue} ({columns}) values ({group}, 12, 'ready', 1, 'b', 19, now())"
    );
    let blocker = Blocker::new(&installation, format!("{on}; {bury}")).await;
    let moving = going(&setting, 11, BACK);
    waiting(&installation, 1).await;
    blocker.end("commit").await;
    assert_eq!(gone(moving).await.touched.lanes, 2);
    assert_eq!(setting.troubles().await, ["6 dead 1/1/0/0"]);
    assert!(setting.take(FAR, 10).await.1.is_empty());
}

/// Two moves, many claimers and settlers at once: afterwards every message above the lower place is given again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_between_many_claims_lose_nothing() {
    let installation = harness::postgres().await;
    let setting = Setting::new(&installation).await;
    let start = std::sync::Arc::new(tokio::sync::Barrier::new(5));
    let mut claimers = tokio::task::JoinSet::new();
    for number in 0..4 {
        let (backend, start) = (installation.another().await, start.clone());
        let (stream, group, presence) = (setting.stream, setting.group, setting.presence);
        claimers.spawn(async move {
            start.wait().await;
            for _ in 0..40 {
                let params = claim_params(stream, group, presence, 3);
                let row = backend.claim_take(&params).await.expect("a claim");
                if row.high == row.low {
                    harness::pass_the_head(&*backend, stream, group, &row).await;
                    continue;
                }
                let exceptions = vec![trouble(row.high, retry(MINUTE)), lane("k", row.low + 1, row.high)];
                let exceptions = if number % 2 == 0 { exceptions } else { Vec::new() };
                let params = SettleParams { exceptions, ..settle_params(stream, params.token) };
                backend.lease_settle(&params).await.expect("a settlement");
            }
        });
    }
    start.wait().await;
    for first in [20, 9, 30, 9] {
        let moved = installation.backend.replay_move(&params(&setting, id(first), BACK)).await.expect("a move");
        assert!(!moved.moved || moved.target == first - 1, "{moved:?}");
    }
    claimers.join_all().await;
    let (_, claimed, _) = cursor(&setting).await;
    let row = go(&setting, 1, BACK).await;
    assert_eq!(row.moved, claimed > 0);
    assert!(setting.troubles().await.is_empty() && leases(&setting).await.is_empty());
    let mut low = 0;
    while low < 40 {
        let (_, row) = claim(&setting, 7).await;
        assert_eq!(row.low, low);
        low = row.high;
    }
    let log = installation.table_of("message_log", setting.stream);
    assert_eq!(installation.count(&log).await, 40);
    assert_eq!(installation.read(setting.stream, 0, 40).await.last().map(|last| last.id), Some(MessageId(40)));
}
