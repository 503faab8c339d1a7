//! Groups that are moved: `replay_look`, `replay_move`, `replay_pause`.

use std::time::Duration;

use sqlstreams_runtime::backend::{
    ClaimRow, ExceptionNext, ExceptionParams, LaneMove, LaneParams, ReplayParams, ReplayRow, ReplayTouched, ReplayWay,
    ReturnParams, SettleParams, StartParams,
};
use sqlstreams_runtime::identity::{LeaseToken, MessageId};

use crate::exception::{FAR, MINUTE, NOW, Setting};
use crate::harness::{Installation, LONG, claim_params, code, on_both, produced_at, retry, settle_params, trouble};

mod letter;
mod race;

on_both! {
    look_says_what_a_move_would_do_and_changes_nothing,
    look_finds_the_place_of_an_id_a_time_the_beginning_and_the_head,
    look_and_move_of_a_group_that_is_gone_are_refused,
    move_back_gives_everything_above_again_and_nothing_below,
    move_back_marks_what_was_given_before_until_it_is_passed,
    move_back_twice_marks_up_to_the_highest_place,
    move_back_takes_leases_above_from_their_owners,
    move_back_cuts_a_lease_across_and_leaves_it_to_others,
    move_back_forgets_trouble_above_and_keeps_trouble_below,
    move_back_removes_or_keeps_dead_letters,
    move_back_takes_running_trouble_from_its_owner,
    move_back_cuts_a_lane_across_and_takes_it_from_its_owner,
    move_back_takes_a_ticket_of_a_place_above,
    move_back_cuts_parked_ranges,
    move_back_goes_no_further_than_the_first_stored_message,
    move_back_with_nothing_stored_changes_nothing,
    move_back_stays_in_its_group,
    move_back_waits_for_idle_handlers_when_asked_to,
    move_begins_a_new_epoch_and_keeps_committed_below_claimed,
    move_the_other_way_changes_nothing,
    move_forward_skips_and_leaves_open_leases_and_trouble,
    move_forward_discards_trouble_when_asked_to,
    move_forward_past_a_replay_ends_it,
    a_retry_of_a_replayed_message_is_a_replay_and_so_is_a_reclaimed_range,
    pause_keeps_the_group_from_taking_anything_until_it_is_over,
}

const BACK: ReplayWay = ReplayWay::Back { keep_dead_letters: false, only_idle: false };
const KEEPING: ReplayWay = ReplayWay::Back { keep_dead_letters: true, only_idle: false };
const FORWARD: ReplayWay = ReplayWay::Forward { discard_waiting: false };

fn params(setting: &Setting<'_>, to: StartParams, way: ReplayWay) -> ReplayParams {
    ReplayParams { stream: setting.stream, group: setting.group, to, way }
}

fn id(id: i64) -> StartParams {
    StartParams::Id(MessageId(id))
}

/// Moves the group so that `first` is the next message that it gets.
async fn go(setting: &Setting<'_>, first: i64, way: ReplayWay) -> ReplayRow {
    setting.installation.backend.replay_move(&params(setting, id(first), way)).await.expect("a move")
}

async fn look(setting: &Setting<'_>, to: StartParams) -> ReplayRow {
    setting.installation.backend.replay_look(&params(setting, to, BACK)).await.expect("a look")
}

async fn claim(setting: &Setting<'_>, width: i64) -> (LeaseToken, ClaimRow) {
    setting.installation.claim(setting.stream, setting.group, setting.presence, width).await
}

/// Claims so many messages and settles them with these in trouble.
async fn handle(setting: &Setting<'_>, width: i64, exceptions: Vec<ExceptionParams>) {
    let (token, _) = claim(setting, width).await;
    settle(setting, token, exceptions).await;
}

async fn settle(setting: &Setting<'_>, token: LeaseToken, exceptions: Vec<ExceptionParams>) -> bool {
    let params = SettleParams { exceptions, now: Some(NOW), ..settle_params(setting.stream, token) };
    setting.installation.backend.lease_settle(&params).await.expect("a settlement")
}

fn dead(id: i64) -> ExceptionParams {
    trouble(id, ExceptionNext::Dead { error: "no use".to_owned() })
}

fn lane(key: &str, id: i64, held_to: i64) -> ExceptionParams {
    let message_key = Some(key.to_owned());
    ExceptionParams { message_key, held_to: Some(held_to), ..trouble(id, retry(MINUTE)) }
}

/// The group's leases, oldest first: `(low, high]`, with an asterisk when they have an owner.
async fn leases(setting: &Setting<'_>) -> Vec<String> {
    let table = setting.installation.table_of("claim_lease", setting.stream);
    let row = "'(' || low || ', ' || high || ']' || case when presence_id is null then '' else '*' end";
    let group = setting.group;
    setting
        .installation
        .texts(&format!("select {row} from {table} where consumer_group_id = {group} order by low"))
        .await
}

/// The group's cursor: epoch, claimed, committed.
async fn cursor(setting: &Setting<'_>) -> (i64, i64, i64) {
    let table = setting.installation.table_of("consumer_group_cursor", setting.stream);
    let column = async |column: &str| {
        let group = setting.group;
        setting.installation.number(&format!("select {column} from {table} where consumer_group_id = {group}")).await
    };
    (column("epoch").await, column("claimed").await, column("committed").await)
}

async fn look_says_what_a_move_would_do_and_changes_nothing(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let mut exceptions = vec![trouble(3, retry(MINUTE)), trouble(12, retry(MINUTE)), dead(13), lane("a", 5, 15)];
    exceptions.push(lane("b", 14, 18));
    let (token, _) = claim(&setting, 20).await;
    let parked = vec![(2, 0, 20)];
    let params = SettleParams { exceptions, parked, now: Some(NOW), ..settle_params(setting.stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    claim(&setting, 5).await;
    let before = (cursor(&setting).await, setting.troubles().await, leases(&setting).await);
    for _ in 0..2 {
        let row = look(&setting, id(11)).await;
        assert_eq!((row.claimed, row.wanted, row.target, row.first, row.head), (25, 10, 10, Some(1), 40));
        assert_eq!((row.messages, row.running, row.moved), (15, 1, false));
        let expected = row.touched;
        assert_eq!((expected.ranges, expected.ranges_cut, expected.waiting, expected.lanes), (1, 0, 1, 1));
        assert_eq!((expected.lanes_cut, expected.dead_letters, expected.parked, expected.parked_cut), (1, 1, 0, 1));
    }
    let after = (cursor(&setting).await, setting.troubles().await, leases(&setting).await);
    assert_eq!(before, after);
    let planned = look(&setting, id(11)).await.touched;
    assert_eq!(go(&setting, 11, BACK).await.touched, planned, "the move does what was said");
}

async fn look_finds_the_place_of_an_id_a_time_the_beginning_and_the_head(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, Vec::new()).await;
    let log = installation.table_of("message_log", setting.stream);
    installation
        .execute(&format!("update {log} set created_at = {} where id > 7", produced_at(installation, 2000)))
        .await;
    installation
        .execute(&format!("update {log} set created_at = {} where id <= 7", produced_at(installation, 1000)))
        .await;
    let time = |millis: i64| StartParams::Time(sqlstreams_runtime::Timestamp(millis * 1000));
    let places = [
        (StartParams::Beginning, 0, 0),
        (id(0), 0, 0),
        (id(9), 8, 8),
        (time(0), 0, 0),
        (time(1000), 0, 0),
        (time(1001), 7, 7),
        (time(2000), 7, 7),
        (time(2001), 40, 40),
        (StartParams::Head, 40, 40),
        (id(1000), 999, 40),
    ];
    installation.backend.cursor_observe(setting.stream, &[setting.group]).await.expect("an observation");
    for (to, wanted, target) in places {
        let row = look(&setting, to).await;
        assert_eq!((row.wanted, row.target), (wanted, target), "{to:?}");
        assert_eq!(row.messages, (target - 20).unsigned_abs(), "{to:?}");
    }
}

async fn look_and_move_of_a_group_that_is_gone_are_refused(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let group = installation.table("consumer_group_config");
    installation.execute(&format!("delete from {group} where id = {}", setting.group)).await;
    let params = params(&setting, StartParams::Beginning, BACK);
    assert_eq!(code(installation.backend.replay_look(&params).await), "SQLS-0320");
    assert_eq!(code(installation.backend.replay_move(&params).await), "SQLS-0320");
    let pause = installation.backend.replay_pause(setting.stream, setting.group, Some(MINUTE)).await;
    assert_eq!(code(pause), "SQLS-0320");
}

async fn move_back_gives_everything_above_again_and_nothing_below(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 30, Vec::new()).await;
    let row = go(&setting, 11, BACK).await;
    assert_eq!((row.claimed, row.target, row.moved), (30, 10, true));
    assert_eq!(row.touched, ReplayTouched::default());
    let (_, row) = claim(&setting, 100).await;
    assert_eq!((row.low, row.high), (10, 40));
}

async fn move_back_marks_what_was_given_before_until_it_is_passed(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let (_, row) = claim(&setting, 20).await;
    assert_eq!((row.epoch, row.replay_until), (0, None));
    go(&setting, 6, BACK).await;
    let (token, row) = claim(&setting, 10).await;
    assert_eq!((row.low, row.epoch, row.replay_until), (5, 1, Some(20)));
    let lease = installation.backend.lease_find(setting.stream, token).await.expect("a look").expect("a lease");
    assert_eq!(lease.replay_until, Some(20));
    let (_, row) = claim(&setting, 10).await;
    assert_eq!((row.low, row.high, row.replay_until), (15, 25, Some(20)), "the end lies inside");
    let (token, row) = claim(&setting, 10).await;
    assert_eq!((row.low, row.epoch, row.replay_until), (25, 1, None));
    let lease = installation.backend.lease_find(setting.stream, token).await.expect("a look").expect("a lease");
    assert_eq!(lease.replay_until, None);
}

async fn move_back_twice_marks_up_to_the_highest_place(installation: &Installation) {
    let setting = Setting::new(installation).await;
    claim(&setting, 30).await;
    go(&setting, 6, BACK).await;
    claim(&setting, 10).await;
    go(&setting, 1, BACK).await;
    let (_, row) = claim(&setting, 40).await;
    assert_eq!((row.low, row.epoch, row.replay_until), (0, 2, Some(30)));
}

async fn move_back_takes_leases_above_from_their_owners(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let (below, _) = claim(&setting, 10).await;
    let (above, _) = claim(&setting, 10).await;
    let (highest, _) = claim(&setting, 10).await;
    let row = go(&setting, 11, BACK).await;
    assert_eq!((row.touched.ranges, row.touched.ranges_cut, row.running), (2, 0, 2));
    let (stream, group) = (setting.stream, setting.group);
    let report =
        installation.backend.lease_report(stream, group, setting.presence, &[below, above, highest], &[]).await;
    assert_eq!(report.expect("a report"), [below], "the owner learns it from its heartbeat");
    assert!(!settle(&setting, above, vec![dead(11), trouble(12, retry(MINUTE))]).await, "a late owner settles nothing");
    let back = ReturnParams { token: highest, done: vec![(20, 25)], exceptions: vec![dead(26)] };
    installation.backend.lease_return(stream, &[back]).await.expect("a late return");
    let mut late = claim_params(stream, group, setting.presence, 0);
    late.settled = vec![above, highest];
    installation.backend.claim_take(&late).await.expect("a late clean end");
    installation.backend.delivery_append(stream, above, &[MessageId(11)]).await.expect("a late log");
    assert!(setting.troubles().await.is_empty() && installation.attempts(stream, group).await.is_empty());
    assert_eq!(leases(&setting).await, ["(0, 10]*"]);
    assert!(settle(&setting, below, Vec::new()).await, "what lies below is its owner's");
    let (_, row) = claim(&setting, 100).await;
    assert_eq!((row.low, row.high), (10, 40));
}

async fn move_back_cuts_a_lease_across_and_leaves_it_to_others(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let (token, _) = claim(&setting, 20).await;
    let progress = sqlstreams_runtime::backend::ProgressParams { token, done: vec![(0, 4), (15, 17)] };
    let (stream, group) = (setting.stream, setting.group);
    installation.backend.lease_report(stream, group, setting.presence, &[token], &[progress]).await.expect("a report");
    let row = go(&setting, 9, BACK).await;
    assert_eq!((row.touched.ranges, row.touched.ranges_cut, row.running), (0, 1, 1));
    assert_eq!(leases(&setting).await, ["(0, 8]"]);
    let report = installation.backend.lease_report(stream, group, setting.presence, &[token], &[]).await;
    assert_eq!(report.expect("a report"), []);
    assert!(!settle(&setting, token, vec![dead(2)]).await);
    let taken = installation.backend.lease_reclaim(stream, group, setting.presence, LeaseToken::mint()).await;
    let lease = taken.expect("a look").expect("it was left");
    assert_eq!((lease.low, lease.high, lease.reclaims, lease.replay_until), (0, 8, 0, None), "no owner was lost");
    assert_eq!(lease.done[0], (0, 4), "what was handled below stays so");
    let (_, row) = claim(&setting, 100).await;
    assert_eq!((row.low, row.high), (8, 40));
}

async fn move_back_forgets_trouble_above_and_keeps_trouble_below(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let troubled = [2, 10, 11, 19].map(|id| trouble(id, retry(MINUTE)));
    handle(&setting, 20, troubled.to_vec()).await;
    let row = go(&setting, 11, BACK).await;
    assert_eq!((row.touched.waiting, row.running), (2, 0));
    assert_eq!(setting.troubles().await, ["2 ready 1/1/0/0", "10 ready 1/1/0/0"]);
    let (token, _) = claim(&setting, 10).await;
    assert!(settle(&setting, token, vec![trouble(11, retry(MINUTE))]).await);
    assert_eq!(setting.troubles().await[2], "11 ready 1/1/0/0", "it fails as if for the first time");
}

async fn move_back_removes_or_keeps_dead_letters(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, vec![dead(2), dead(12), dead(13)]).await;
    let row = go(&setting, 13, KEEPING).await;
    assert_eq!(row.touched.dead_letters, 0);
    assert_eq!(setting.troubles().await.len(), 3);
    claim(&setting, 20).await;
    let row = go(&setting, 13, BACK).await;
    assert_eq!(row.touched.dead_letters, 1);
    assert_eq!(setting.troubles().await, ["2 dead 1/1/0/0", "12 dead 1/1/0/0"]);
}

async fn move_back_takes_running_trouble_from_its_owner(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, vec![trouble(5, retry(MINUTE)), trouble(15, retry(MINUTE))]).await;
    let (token, taken) = setting.take(MINUTE, 10).await;
    assert_eq!(crate::exception::ids(&taken), [5, 15]);
    let row = go(&setting, 11, BACK).await;
    assert_eq!((row.touched.waiting, row.running), (1, 1));
    let late = vec![trouble(5, retry(MINUTE)), dead(15)];
    assert_eq!(setting.settle(token, late).await, [5], "a late outcome above changes nothing");
    assert_eq!(setting.troubles().await, ["5 ready 2/2/0/0"]);
}

async fn move_back_cuts_a_lane_across_and_takes_it_from_its_owner(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, vec![lane("a", 5, 18), lane("b", 12, 19), lane("c", 3, 9)]).await;
    let (token, taken) = setting.take(MINUTE, 10).await;
    assert_eq!(crate::exception::ids(&taken), [3, 5, 12]);
    let row = go(&setting, 11, BACK).await;
    assert_eq!((row.touched.lanes, row.touched.lanes_cut, row.touched.waiting, row.running), (1, 1, 0, 2));
    let at = |at: i64| {
        let (stream, group, at) = (setting.stream, setting.group, MessageId(at));
        LaneParams { stream, group, token, at, now: Some(NOW) }
    };
    let to = |to: i64| LaneMove { to: MessageId(to), schema_version: 1, next: None };
    let backend = &installation.backend;
    assert_eq!(backend.lane_move(&at(5), &to(15)).await.expect("an answer"), None, "it would run above the place");
    assert!(!backend.lane_bury(&at(5), "late", Some((MessageId(15), 1)), 18).await.expect("an answer"));
    assert!(!backend.lane_end(&at(12), 19).await.expect("an answer"));
    assert_eq!(backend.lane_move(&at(3), &to(3)).await.expect("an answer"), Some(9), "a lane below is its owner's");
    assert_eq!(setting.troubles().await, ["3 inflight 1/1/0/0", "5 ready 1/1/0/0"]);
    let (_, taken) = setting.take(FAR, 10).await;
    assert_eq!((taken[0].id.0, taken[0].held_to), (5, Some(10)));
    // The key's replay joins the lane again.
    let (range, _) = claim(&setting, 10).await;
    assert!(settle(&setting, range, vec![lane("a", 11, 18)]).await);
    assert_eq!(
        backend
            .lane_move(&LaneParams { token: taken_token(&setting).await, ..at(5) }, &to(5))
            .await
            .expect("an answer"),
        Some(18)
    );
}

/// The token by which the running lane of key a was taken.
async fn taken_token(setting: &Setting<'_>) -> LeaseToken {
    let queue = setting.installation.table_of("exception_queue", setting.stream);
    let hex = if setting.installation.is_postgres() { "token::text" } else { "lower(hex(token))" };
    let query = format!("select {hex} from {queue} where message_id = 5");
    LeaseToken(setting.installation.texts(&query).await[0].parse().expect("a token"))
}

/// A range of the replay would not wait for it, and it would wait for the range.
async fn move_back_takes_a_ticket_of_a_place_above(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, [3, 4, 5].map(|id| trouble(id, retry(MINUTE))).to_vec()).await;
    let (token, taken) = setting.take(MINUTE, 10).await;
    assert_eq!(taken.len(), 3);
    let queue = installation.table_of("exception_queue", setting.stream);
    installation.execute(&format!("update {queue} set ticket = 20 where message_id = 3")).await;
    installation.execute(&format!("update {queue} set ticket = 10 where message_id = 4")).await;
    let idle = ReplayWay::Back { keep_dead_letters: false, only_idle: true };
    let row = go(&setting, 11, idle).await;
    assert_eq!((row.running, row.moved), (1, false), "what has a ticket of a place above runs");
    let row = go(&setting, 11, BACK).await;
    assert_eq!((row.running, row.touched), (1, ReplayTouched::default()));
    let late = [3, 4, 5].map(|id| trouble(id, ExceptionNext::Done)).to_vec();
    assert_eq!(setting.settle(token, late).await, [4, 5], "the others are their owner's");
    assert_eq!(setting.troubles().await, ["3 ready 1/1/0/0"]);
    let column = format!("select count(*) from {queue} where ticket is null");
    assert_eq!(installation.number(&column).await, 1);
}

async fn move_back_cuts_parked_ranges(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let (token, _) = claim(&setting, 20).await;
    let parked = vec![(2, 0, 20), (3, 12, 20), (4, 0, 5)];
    let params = SettleParams { parked, ..settle_params(setting.stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    let row = go(&setting, 11, BACK).await;
    assert_eq!((row.touched.parked, row.touched.parked_cut), (1, 1));
    let parked = installation.parked(setting.stream, setting.group).await;
    assert_eq!(parked, ["2 (0, 10]", "4 (0, 5]"]);
    // What is parked again extends what was left, and knows that it is a replay.
    let (token, _) = claim(&setting, 10).await;
    let params = SettleParams { parked: vec![(2, 10, 20)], ..settle_params(setting.stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    let params = claim_params(setting.stream, setting.group, setting.presence, 100);
    let lease = installation.backend.parked_take(&params, &[2]).await.expect("a look").expect("a range");
    assert_eq!((lease.low, lease.high, lease.replay_until), (0, 20, Some(20)));
    // A lease on a parked range is cut as any other.
    let row = go(&setting, 6, BACK).await;
    assert_eq!((row.touched.ranges, row.touched.ranges_cut), (0, 1));
    assert_eq!(leases(&setting).await, ["(0, 5]"]);
}

async fn move_back_goes_no_further_than_the_first_stored_message(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 30, Vec::new()).await;
    let log = installation.table_of("message_log", setting.stream);
    installation.execute(&format!("delete from {log} where id <= 12")).await;
    let row = go(&setting, 5, BACK).await;
    assert_eq!((row.wanted, row.target, row.first, row.moved), (4, 12, Some(13), true));
    let (_, row) = claim(&setting, 100).await;
    assert_eq!((row.low, row.high), (12, 40));
}

async fn move_back_with_nothing_stored_changes_nothing(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 30, vec![trouble(7, retry(MINUTE))]).await;
    let log = installation.table_of("message_log", setting.stream);
    // What is left lies ahead of the group anyway.
    installation.execute(&format!("delete from {log} where id <= 35")).await;
    let row = go(&setting, 5, BACK).await;
    assert_eq!((row.target, row.moved), (30, false));
    installation.execute(&format!("delete from {log}")).await;
    let row = go(&setting, 5, BACK).await;
    assert_eq!((row.target, row.moved, row.first), (30, false, None));
    assert_eq!(setting.troubles().await.len(), 1);
}

async fn move_back_stays_in_its_group(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let group = installation.group(setting.stream, "others").await;
    let others = Setting { installation, stream: setting.stream, group, presence: setting.presence };
    for setting in [&setting, &others] {
        let (token, _) = claim(setting, 20).await;
        let exceptions = vec![dead(12), trouble(13, retry(MINUTE)), lane("a", 5, 15)];
        let parked = vec![(2, 0, 20)];
        let params = SettleParams { exceptions, parked, ..settle_params(setting.stream, token) };
        assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
        claim(setting, 10).await;
    }
    let state = async || {
        let parked = installation.parked(others.stream, others.group).await;
        (cursor(&others).await, others.troubles().await, leases(&others).await, parked)
    };
    let before = state().await;
    assert!(go(&setting, 8, BACK).await.moved);
    assert_eq!(state().await, before);
}

async fn move_back_waits_for_idle_handlers_when_asked_to(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 10, vec![trouble(8, retry(MINUTE))]).await;
    let (below, _) = claim(&setting, 2).await;
    let idle = ReplayWay::Back { keep_dead_letters: false, only_idle: true };
    let (above, _) = claim(&setting, 5).await;
    let row = go(&setting, 13, idle).await;
    assert_eq!((row.running, row.moved), (1, false), "a range is being handled");
    assert!(settle(&setting, above, Vec::new()).await, "nothing was changed");
    let (token, taken) = setting.take(MINUTE, 10).await;
    assert_eq!(taken.len(), 1);
    let row = go(&setting, 5, idle).await;
    assert_eq!((row.running, row.moved), (2, false), "the range below is above now, and a retry runs");
    assert_eq!(setting.settle(token, vec![trouble(8, retry(MINUTE))]).await, [8]);
    assert!(settle(&setting, below, Vec::new()).await);
    // What a lost process had does not run.
    let lost = installation.presence().await;
    let lost_claim = claim_params(setting.stream, setting.group, lost, 5);
    let row = installation.backend.claim_take(&lost_claim).await.expect("a claim");
    assert!(row.high > row.low, "everything is proven: {row:?}");
    installation.expire(lost).await;
    let row = go(&setting, 5, idle).await;
    assert_eq!((row.running, row.moved, row.touched.ranges, row.touched.waiting), (0, true, 1, 1));
}

async fn move_begins_a_new_epoch_and_keeps_committed_below_claimed(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 30, Vec::new()).await;
    let table = installation.table_of("consumer_group_cursor", setting.stream);
    installation.execute(&format!("update {table} set committed = 25")).await;
    assert_eq!(cursor(&setting).await, (0, 30, 25));
    go(&setting, 28, BACK).await;
    assert_eq!(cursor(&setting).await, (1, 27, 25));
    go(&setting, 11, BACK).await;
    assert_eq!(cursor(&setting).await, (2, 10, 10), "what is given again is not committed");
    // Whoever read its target before the move writes nothing with the epoch that it saw.
    let late = format!("update {table} set committed = 25 where consumer_group_id = {} and epoch = 1", setting.group);
    installation.execute(&late).await;
    assert_eq!(cursor(&setting).await, (2, 10, 10));
    go(&setting, 21, FORWARD).await;
    assert_eq!(cursor(&setting).await, (3, 20, 10));
}

async fn move_the_other_way_changes_nothing(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, vec![trouble(7, retry(MINUTE))]).await;
    for (first, way) in [(30, BACK), (21, BACK), (10, FORWARD), (21, FORWARD)] {
        let row = go(&setting, first, way).await;
        assert_eq!((row.wanted, row.moved), (first - 1, false), "{way:?}");
    }
    assert_eq!(cursor(&setting).await, (0, 20, 0));
    assert_eq!(setting.troubles().await.len(), 1);
}

/// Lets the head be proven, whatever else runs on the server.
async fn prove(setting: &Setting<'_>) {
    let deadline = std::time::Instant::now() + crate::harness::PATIENCE;
    while look(setting, StartParams::Head).await.target < 40 {
        setting.installation.backend.cursor_observe(setting.stream, &[setting.group]).await.expect("an observation");
        assert!(std::time::Instant::now() < deadline, "the head is never proven");
    }
}

async fn move_forward_skips_and_leaves_open_leases_and_trouble(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 10, vec![trouble(7, retry(MINUTE)), dead(8), lane("a", 3, 9)]).await;
    let (token, _) = claim(&setting, 5).await;
    prove(&setting).await;
    let row = go(&setting, 31, FORWARD).await;
    assert_eq!((row.claimed, row.target, row.moved, row.touched), (15, 30, true, ReplayTouched::default()));
    assert_eq!(leases(&setting).await, ["(10, 15]*"]);
    assert!(settle(&setting, token, vec![trouble(12, retry(MINUTE))]).await, "an open lease ends as usual");
    let troubles = setting.troubles().await;
    assert_eq!(troubles, ["3 ready 1/1/0/0", "7 ready 1/1/0/0", "8 dead 1/1/0/0", "12 ready 1/1/0/0"]);
    let (_, row) = claim(&setting, 100).await;
    assert_eq!((row.low, row.high, row.replay_until), (30, 40, None));
}

async fn move_forward_discards_trouble_when_asked_to(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 10, vec![trouble(7, retry(MINUTE)), dead(8), lane("a", 3, 9)]).await;
    let (token, _) = setting.take(MINUTE, 1).await;
    prove(&setting).await;
    let row = go(&setting, 31, ReplayWay::Forward { discard_waiting: true }).await;
    assert_eq!((row.touched.waiting, row.touched.lanes, row.touched.dead_letters), (1, 1, 0));
    assert_eq!(setting.troubles().await, ["8 dead 1/1/0/0"]);
    assert_eq!(setting.settle(token, vec![dead(7), dead(3)]).await, [0; 0], "a late owner records nothing");
}

async fn move_forward_past_a_replay_ends_it(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, Vec::new()).await;
    prove(&setting).await;
    go(&setting, 1, BACK).await;
    go(&setting, 11, FORWARD).await;
    let (_, row) = claim(&setting, 5).await;
    assert_eq!((row.low, row.replay_until), (10, Some(20)), "the replay goes on behind the place");
    go(&setting, 21, FORWARD).await;
    let (_, row) = claim(&setting, 5).await;
    assert_eq!((row.low, row.replay_until), (20, None));
}

async fn a_retry_of_a_replayed_message_is_a_replay_and_so_is_a_reclaimed_range(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, Vec::new()).await;
    go(&setting, 11, BACK).await;
    let (token, row) = claim(&setting, 15).await;
    assert_eq!((row.low, row.high), (10, 25));
    let back =
        ReturnParams { token, done: vec![], exceptions: vec![trouble(12, ExceptionNext::Return), lane("a", 13, 24)] };
    installation.backend.lease_return(setting.stream, &[back]).await.expect("a return");
    let token = LeaseToken::mint();
    let taken = installation.backend.lease_reclaim(setting.stream, setting.group, setting.presence, token).await;
    assert_eq!(taken.expect("a look").expect("a lease").replay_until, Some(20));
    assert!(settle(&setting, token, vec![trouble(11, retry(MINUTE)), trouble(23, retry(MINUTE))]).await);
    let (token, taken) = setting.take(FAR, 10).await;
    let seen: Vec<_> = taken.iter().map(|row| (row.id.0, row.replay_until)).collect();
    assert_eq!(seen, [(11, Some(20)), (12, Some(20)), (13, Some(20)), (23, Some(20))]);
    // The lane's successor knows it too.
    let params = LaneParams { stream: setting.stream, group: setting.group, token, at: MessageId(13), now: Some(NOW) };
    assert!(installation.backend.lane_bury(&params, "no", Some((MessageId(14), 1)), 24).await.expect("an answer"));
    let (_, taken) = setting.take(FAR, 10).await;
    assert_eq!((taken[0].id.0, taken[0].replay_until), (14, Some(20)));
}

async fn pause_keeps_the_group_from_taking_anything_until_it_is_over(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, vec![trouble(5, retry(MINUTE))]).await;
    let (stream, group) = (setting.stream, setting.group);
    let pause = async |length| installation.backend.replay_pause(stream, group, length).await.expect("a pause");
    prove(&setting).await;
    let params = claim_params(stream, group, setting.presence, 5);
    pause(Some(LONG)).await;
    let row = installation.backend.claim_take(&params).await.expect("a claim");
    assert_eq!((row.low, row.high, row.missing), (20, 20, false));
    assert!(setting.take(FAR, 10).await.1.is_empty(), "nor retries");
    // A process's observations leave the pause alone.
    installation.produce(stream, 1).await;
    installation.backend.cursor_observe(stream, &[group]).await.expect("an observation");
    assert_eq!(installation.backend.claim_take(&params).await.expect("a claim").high, 20);
    pause(None).await;
    assert_eq!(setting.take(FAR, 10).await.1.len(), 1);
    assert_eq!(claim(&setting, 5).await.1.low, 20);
    pause(Some(Duration::ZERO)).await;
    assert_eq!(claim(&setting, 5).await.1.low, 25, "a pause ends by itself");
    pause(Some(LONG)).await;
    assert!(go(&setting, 1, BACK).await.moved);
    assert_eq!(claim(&setting, 5).await.1.low, 0, "a move ends it");
}
