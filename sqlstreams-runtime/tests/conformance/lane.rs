//! Lanes of keys in trouble: `lane_read`, `lane_move`, `lane_bury`, `lane_end`, and how ranges extend them.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::backend::{
    ExceptionNext, ExceptionParams, ExceptionRow, LaneMove, LaneParams, LaneReadParams, ReturnParams, SettleParams,
};
use sqlstreams_runtime::identity::{LeaseToken, MessageId};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::exception::{FAR, MINUTE, NOW, Setting};
use crate::harness::{Installation, keyed, on_both, retry, settle_params, trouble};

on_both! {
    settle_makes_one_row_of_a_key_and_extends_it,
    settle_of_a_dead_message_leaves_its_successors_in_the_lane,
    return_makes_one_lane_of_several_ranges,
    return_with_lanes_is_all_or_nothing,
    read_gives_the_keys_messages_in_order_and_in_pages,
    read_leaves_out_payloads_of_other_versions,
    move_counts_for_the_message_and_begins_anew_at_the_next,
    move_by_a_lost_owner_or_from_elsewhere_changes_nothing,
    bury_makes_a_dead_letter_and_a_lane_of_its_successor,
    bury_without_a_successor_ends_the_lane_unless_it_was_extended,
    end_deletes_the_lane_unless_it_was_extended,
    end_and_an_extension_never_lose_a_message,
    take_hands_a_lane_out_that_lost_too_many_owners,
}

/// The key's lane from `id` to `held_to`.
fn lane(id: i64, held_to: i64, next: ExceptionNext) -> ExceptionParams {
    ExceptionParams { message_key: Some("a".to_owned()), held_to: Some(held_to), ..trouble(id, next) }
}

fn dead() -> ExceptionNext {
    ExceptionNext::Dead { error: "never".to_owned() }
}

/// Messages 1 to 40 have no key; 41 to 60 the keys `a` and `b` in turn.
async fn setting(installation: &Installation) -> Setting<'_> {
    let setting = Setting::new(installation).await;
    let messages: Vec<_> = (0..20).map(|number| keyed(if number % 2 == 0 { "a" } else { "b" }, number)).collect();
    installation.backend.message_produce(setting.stream, 1, 0, &messages).await.expect("a batch can be produced");
    setting
}

/// A lane from 41 to 45, taken; its token.
async fn taken(setting: &Setting<'_>) -> LeaseToken {
    setting.trouble(vec![lane(41, 45, retry(MINUTE))]).await;
    let (token, rows) = setting.take(FAR, 10).await;
    assert_eq!(rows.iter().map(|row| (row.id.0, row.held_to)).collect::<Vec<_>>(), [(41, Some(45))]);
    token
}

fn params(setting: &Setting<'_>, token: LeaseToken, at: i64) -> LaneParams {
    LaneParams { stream: setting.stream, group: setting.group, token, at: MessageId(at), now: Some(NOW) }
}

fn to(id: i64, next: Option<ExceptionNext>) -> LaneMove {
    LaneMove { to: MessageId(id), schema_version: 1, next }
}

/// Id, where its lane ends, attempts, failures, kills, and whether it is dead.
type Row = (i64, i64, i64, i64, i64, i64);

/// All rows of the group, by id.
async fn rows(setting: &Setting<'_>) -> Vec<Row> {
    let table = setting.installation.table_of("exception_queue", setting.stream);
    let columns = ["message_id", "coalesce(held_to, 0)", "attempts", "failures", "kills", "died_at is not null"];
    let columns = columns.map(|column| format!("'' || cast(({column}) as integer)")).join(" || ' ' || ");
    let texts = setting.installation.texts(&format!("select {columns} from {table} order by message_id")).await;
    let row = |text: &String| {
        let numbers: Vec<i64> = text.split(' ').map(|number| number.parse().expect("a number")).collect();
        let [id, held_to, attempts, failures, kills, dead] = numbers[..] else { panic!("{text} is no row") };
        (id, held_to, attempts, failures, kills, dead)
    };
    texts.iter().map(row).collect()
}

async fn settle_makes_one_row_of_a_key_and_extends_it(installation: &Installation) {
    let setting = setting(installation).await;
    setting.trouble(vec![lane(1, 3, retry(MINUTE)), trouble(2, retry(MINUTE))]).await;
    assert_eq!(rows(&setting).await, [(1, 3, 1, 1, 0, 0), (2, 0, 1, 1, 0, 0)]);
    setting.trouble(vec![lane(25, 31, ExceptionNext::Return)]).await;
    assert_eq!(rows(&setting).await, [(1, 31, 1, 1, 0, 0), (2, 0, 1, 1, 0, 0)], "one row a key, and its counters stay");
    setting.trouble(vec![lane(41, 20, ExceptionNext::Return)]).await;
    assert_eq!(rows(&setting).await[0].1, 31, "a lane never gets shorter");
}

async fn settle_of_a_dead_message_leaves_its_successors_in_the_lane(installation: &Installation) {
    let setting = setting(installation).await;
    let exceptions = vec![
        ExceptionParams { message_key: Some("a".to_owned()), ..trouble(1, dead()) },
        lane(3, 9, ExceptionNext::Return),
    ];
    setting.trouble(exceptions).await;
    assert_eq!(rows(&setting).await, [(1, 0, 1, 1, 0, 1), (3, 9, 0, 0, 0, 0)]);
}

async fn return_makes_one_lane_of_several_ranges(installation: &Installation) {
    let setting = setting(installation).await;
    let mut tokens = Vec::new();
    for _ in 0..3 {
        tokens.push(installation.claim(setting.stream, setting.group, setting.presence, 10).await.0);
    }
    let back = |token, exceptions| ReturnParams { token, done: Vec::new(), exceptions };
    let leases = [
        back(tokens[2], vec![lane(21, 27, ExceptionNext::Return)]),
        back(tokens[0], vec![lane(5, 9, retry(MINUTE)), trouble(2, retry(MINUTE))]),
        back(tokens[1], vec![lane(11, 13, ExceptionNext::Return)]),
    ];
    installation.backend.lease_return(setting.stream, &leases).await.expect("a return");
    assert_eq!(rows(&setting).await, [(2, 0, 1, 1, 0, 0), (5, 27, 1, 1, 0, 0)]);
}

async fn return_with_lanes_is_all_or_nothing(installation: &Installation) {
    let setting = setting(installation).await;
    let lost = installation.claim(setting.stream, setting.group, setting.presence, 10).await.0;
    installation.expire(setting.presence).await;
    let thief = installation.presence().await;
    let thiefs = LeaseToken::mint();
    let stolen = installation.backend.lease_reclaim(setting.stream, setting.group, thief, thiefs).await;
    assert!(stolen.expect("a look").is_some());
    let kept = installation.claim(setting.stream, setting.group, setting.presence, 10).await.0;
    let leases = [
        ReturnParams { token: lost, done: vec![(0, 9)], exceptions: vec![lane(3, 9, retry(MINUTE))] },
        ReturnParams { token: kept, done: vec![(10, 20)], exceptions: vec![lane(11, 15, ExceptionNext::Return)] },
    ];
    installation.backend.lease_return(setting.stream, &leases).await.expect("an answer");
    assert_eq!(rows(&setting).await, [], "a lane at 11 would run before 3 is resolved");
    for token in [thiefs, kept] {
        let lease = installation.backend.lease_find(setting.stream, token).await.expect("a look").expect("a lease");
        assert_eq!(lease.done, []);
    }
}

async fn read(setting: &Setting<'_>, after: i64, held_to: i64, limit: i64, versions: &[i32]) -> Vec<(i64, bool)> {
    let params = LaneReadParams {
        stream: setting.stream,
        message_key: "a".to_owned(),
        after,
        held_to,
        limit,
        versions: versions.to_vec(),
        bindings: Vec::new(),
    };
    let messages = setting.installation.backend.lane_read(&params).await.expect("an answer");
    messages.iter().map(|message| (message.id.0, message.payload.is_some())).collect()
}

async fn read_gives_the_keys_messages_in_order_and_in_pages(installation: &Installation) {
    let setting = setting(installation).await;
    let ids = async |after, held_to, limit| -> Vec<i64> {
        read(&setting, after, held_to, limit, &[1]).await.into_iter().map(|(id, _)| id).collect()
    };
    assert_eq!(ids(0, 100, 100).await, (41..60).step_by(2).collect::<Vec<_>>());
    assert_eq!(ids(41, 49, 100).await, [43, 45, 47, 49]);
    assert_eq!(ids(41, 60, 2).await, [43, 45]);
    assert_eq!(ids(49, 49, 9).await, [0; 0]);
}

async fn read_leaves_out_payloads_of_other_versions(installation: &Installation) {
    let setting = setting(installation).await;
    installation.backend.message_produce(setting.stream, 2, 0, &[keyed("a", 0)]).await.expect("a message");
    assert_eq!(read(&setting, 57, 99, 9, &[2]).await, [(59, false), (61, true)]);
}

async fn move_counts_for_the_message_and_begins_anew_at_the_next(installation: &Installation) {
    let setting = setting(installation).await;
    let backend = &installation.backend;
    let token = taken(&setting).await;
    // Going on keeps what was counted for the same message, and the token.
    let moved = backend.lane_move(&params(&setting, token, 41), &to(41, None)).await.expect("an answer");
    assert_eq!((moved, rows(&setting).await), (Some(45), vec![(41, 45, 1, 1, 0, 0)]));
    let moved = backend.lane_move(&params(&setting, token, 41), &to(43, None)).await.expect("an answer");
    assert_eq!((moved, rows(&setting).await), (Some(45), vec![(43, 45, 0, 0, 0, 0)]));
    let next = Some(retry(MINUTE));
    let moved = backend.lane_move(&params(&setting, token, 43), &to(45, next)).await.expect("an answer");
    assert_eq!((moved, rows(&setting).await), (Some(45), vec![(45, 45, 1, 1, 0, 0)]));
    assert_eq!(setting.take(MINUTE - Duration::from_micros(1), 9).await.1.len(), 0, "not before its time");
    let (token, taken) = setting.take(MINUTE, 9).await;
    assert_eq!(taken.len(), 1);
    let next = Some(ExceptionNext::Later { after: Duration::ZERO });
    backend.lane_move(&params(&setting, token, 45), &to(45, next)).await.expect("an answer");
    assert_eq!(rows(&setting).await, [(45, 45, 2, 1, 0, 0)]);
    let (token, taken) = setting.take(FAR, 9).await;
    assert_eq!((taken[0].attempts, taken[0].failures, taken[0].delays), (2, 1, 1));
    backend.lane_move(&params(&setting, token, 45), &to(45, Some(ExceptionNext::Return))).await.expect("an answer");
    assert_eq!(rows(&setting).await, [(45, 45, 2, 1, 0, 0)], "nothing is counted");
}

async fn move_by_a_lost_owner_or_from_elsewhere_changes_nothing(installation: &Installation) {
    let setting = setting(installation).await;
    let backend = &installation.backend;
    let token = taken(&setting).await;
    for lane in [params(&setting, LeaseToken::mint(), 41), params(&setting, token, 43)] {
        let next = Some(retry(MINUTE));
        assert_eq!(backend.lane_move(&lane, &to(45, next)).await.expect("an answer"), None);
        assert!(!backend.lane_bury(&lane, "never", None, 45).await.expect("an answer"));
        assert!(!backend.lane_end(&lane, 45).await.expect("an answer"));
    }
    assert_eq!(rows(&setting).await, [(41, 45, 1, 1, 0, 0)]);
}

async fn bury_makes_a_dead_letter_and_a_lane_of_its_successor(installation: &Installation) {
    let setting = setting(installation).await;
    let token = taken(&setting).await;
    let lane = params(&setting, token, 41);
    let successor = Some((MessageId(43), 1));
    // What the caller knows of the end does not matter: the lane goes on.
    assert!(installation.backend.lane_bury(&lane, "never", successor, 7).await.expect("an answer"));
    assert_eq!(rows(&setting).await, [(41, 0, 2, 2, 0, 1), (43, 45, 0, 0, 0, 0)]);
    assert!(!installation.backend.lane_bury(&lane, "never", successor, 45).await.expect("the second answer"));
    let (_, rows) = setting.take(FAR, 9).await;
    assert_eq!(rows.iter().map(|row: &ExceptionRow| (row.id.0, row.attempts)).collect::<Vec<_>>(), [(43, 0)]);
}

async fn bury_without_a_successor_ends_the_lane_unless_it_was_extended(installation: &Installation) {
    let setting = setting(installation).await;
    let token = taken(&setting).await;
    let lane_at = params(&setting, token, 41);
    setting.trouble(vec![lane(47, 49, ExceptionNext::Return)]).await;
    assert!(!installation.backend.lane_bury(&lane_at, "never", None, 45).await.expect("an answer"));
    assert_eq!(rows(&setting).await, [(41, 49, 1, 1, 0, 0)]);
    assert!(installation.backend.lane_bury(&lane_at, "never", None, 49).await.expect("an answer"));
    assert_eq!(rows(&setting).await, [(41, 0, 2, 2, 0, 1)]);
}

async fn end_deletes_the_lane_unless_it_was_extended(installation: &Installation) {
    let setting = setting(installation).await;
    let token = taken(&setting).await;
    let lane_at = params(&setting, token, 41);
    setting.trouble(vec![lane(47, 49, ExceptionNext::Return)]).await;
    assert!(!installation.backend.lane_end(&lane_at, 45).await.expect("an answer"));
    assert_eq!(rows(&setting).await, [(41, 49, 1, 1, 0, 0)]);
    assert!(installation.backend.lane_end(&lane_at, 49).await.expect("an answer"));
    assert_eq!(rows(&setting).await, []);
}

/// Whoever comes first, the messages of the extension stay in a lane.
async fn end_and_an_extension_never_lose_a_message(installation: &Installation) {
    let setting = setting(installation).await;
    for round in 0..20 {
        installation.produce(setting.stream, 2).await;
        let first = installation.claim(setting.stream, setting.group, setting.presence, 1).await.0;
        let second = installation.claim(setting.stream, setting.group, setting.presence, 1).await.0;
        let settle = |token, id| SettleParams {
            exceptions: vec![lane(id, id, ExceptionNext::Return)],
            now: Some(NOW),
            ..settle_params(setting.stream, token)
        };
        let id = 1000 + round * 2;
        assert!(installation.backend.lease_settle(&settle(first, id)).await.expect("a settlement"));
        let (token, taken) = setting.take(FAR, 9).await;
        assert_eq!(taken.len(), 1, "round {round}");
        let together = Arc::new(Barrier::new(2));
        let mut tasks = JoinSet::new();
        let (backend, barrier, lane_at) =
            (Arc::clone(&installation.backend), Arc::clone(&together), params(&setting, token, id));
        tasks.spawn(async move {
            barrier.wait().await;
            backend.lane_end(&lane_at, id).await.expect("an answer")
        });
        let (backend, params_of_second) = (installation.another().await, settle(second, id + 1));
        tasks.spawn(async move {
            together.wait().await;
            backend.lease_settle(&params_of_second).await.expect("a settlement")
        });
        tasks.join_all().await;
        let left = rows(&setting).await;
        assert_eq!(left.len(), 1, "round {round}: {left:?}");
        assert!(left[0].0 <= id + 1 && left[0].1 == id + 1, "round {round}: {left:?}");
        // The lane's end, for the next round.
        let at = params(&setting, token, left[0].0);
        if !installation.backend.lane_end(&at, id + 1).await.expect("an answer") {
            let (token, _) = setting.take(FAR, 9).await;
            let at = params(&setting, token, left[0].0);
            assert!(installation.backend.lane_end(&at, id + 1).await.expect("an answer"));
        }
    }
}

async fn take_hands_a_lane_out_that_lost_too_many_owners(installation: &Installation) {
    let setting = setting(installation).await;
    setting.trouble(vec![lane(41, 45, retry(MINUTE)), trouble(2, retry(MINUTE))]).await;
    for kills in 0..5 {
        let mut owner = setting.take_params(FAR, 10);
        (owner.presence, owner.suspects) = (installation.presence().await, 9);
        let rows = installation.backend.exception_take(&owner).await.expect("an answer");
        let lane = rows.iter().find(|row| row.id.0 == 41).map(|row| (row.kills, row.held_to));
        assert_eq!(lane, Some((kills, Some(45))));
        installation.expire(owner.presence).await;
    }
    let dead: Vec<_> = rows(&setting).await.iter().filter(|row| row.5 == 1).map(|row| row.0).collect();
    assert_eq!(dead, [2], "a message without a key dies of it");
}
