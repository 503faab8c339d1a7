//! Ends of ranges that are not clean: `lease_settle` with messages in trouble and with parked ranges.

use std::time::Duration;

use sqlstreams_runtime::Timestamp;
use sqlstreams_runtime::backend::{ExceptionNext, ExceptionParams, ProgressParams, SettleParams};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, PresenceId, StreamId};

use crate::harness::{Installation, on_both, retry, settle_params, trouble};

on_both! {
    settle_records_what_happens_next,
    settle_keeps_the_time_that_it_is_told,
    settle_keeps_version_key_and_error,
    settle_makes_no_row_of_what_is_done,
    settle_leaves_a_row_that_is_there_as_it_is,
    settle_takes_a_thousand_exceptions_at_once,
    settle_by_an_owner_that_lost_the_range_changes_nothing,
    settle_of_an_expired_owner_counts_until_somebody_takes_over,
    settle_and_a_takeover_never_both_win,
    settle_parks_what_the_build_cannot_read,
    settle_extends_a_parked_range_in_place,
    settle_extends_contiguous_ranges_only,
}

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);
const MINUTE: Duration = Duration::from_secs(60);

/// A stream with a group, forty messages and a process.
async fn setting(installation: &Installation) -> (StreamId, GroupId, PresenceId) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    installation.produce(stream, 40).await;
    (stream, group, installation.presence().await)
}

fn dead() -> ExceptionNext {
    ExceptionNext::Dead { error: "no use".to_owned() }
}

async fn settle_records_what_happens_next(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let (token, _) = installation.claim(stream, group, presence, 10).await;
    let exceptions = vec![
        trouble(1, retry(MINUTE)),
        trouble(3, ExceptionNext::Later { after: MINUTE }),
        trouble(5, dead()),
        trouble(7, ExceptionNext::Return),
    ];
    let params = SettleParams { exceptions, ..settle_params(stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    let expected = ["1 ready 1/1/0/0", "3 ready 1/0/1/0", "5 dead 1/1/0/0", "7 ready 0/0/0/0"];
    assert_eq!(installation.troubles(stream, group).await, expected);
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.ready, position.inflight, position.dead), (3, 0, 1));
    assert_eq!((position.claimed, position.settled), (10, 0), "the first message in trouble holds the position");
    assert!(!installation.backend.lease_settle(&params).await.expect("no settlement"), "the second answer is false");
    assert_eq!(installation.troubles(stream, group).await, expected);
}

async fn settle_keeps_the_time_that_it_is_told(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let (token, _) = installation.claim(stream, group, presence, 10).await;
    let exceptions = vec![
        trouble(1, retry(MINUTE)),
        trouble(3, ExceptionNext::Later { after: Duration::from_micros(1) }),
        trouble(5, dead()),
        trouble(7, ExceptionNext::Return),
    ];
    let params = SettleParams { exceptions, now: Some(NOW), ..settle_params(stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    let micros = |column: &str| {
        let seconds = format!("(extract(epoch from {column}) * 1000000)::bigint");
        let value = if installation.is_postgres() { seconds } else { column.to_owned() };
        format!("coalesce({value} - {}, -1)", NOW.0)
    };
    let table = installation.table_of("exception_queue", stream);
    let times = [micros("can_run_after"), micros("first_failed_at"), micros("died_at")].join(" || ' ' || ");
    let times = installation.texts(&format!("select {times} from {table} order by message_id")).await;
    assert_eq!(times, ["60000000 0 -1", "1 -1 -1", "-1 0 0", "0 -1 -1"], "due, first failure, death");
}

async fn settle_keeps_version_key_and_error(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let (token, _) = installation.claim(stream, group, presence, 10).await;
    let keyed = |message, key: Option<&str>, version, next| ExceptionParams {
        schema_version: version,
        message_key: key.map(str::to_owned),
        ..trouble(message, next)
    };
    let exceptions = vec![
        keyed(
            1,
            Some("a key, 'with' \"quotes\" {}"),
            3,
            ExceptionNext::Retry { after: MINUTE, error: "é, \\ 'x' NULL".into() },
        ),
        keyed(2, None, 1, ExceptionNext::Dead { error: String::new() }),
        keyed(3, Some(""), 2, ExceptionNext::Later { after: MINUTE }),
    ];
    let params = SettleParams { exceptions, ..settle_params(stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    let table = installation.table_of("exception_queue", stream);
    let columns = "schema_version || '|' || coalesce(message_key, 'none') || '|' || coalesce(last_error, 'none')";
    let rows = installation.texts(&format!("select {columns} from {table} order by message_id")).await;
    assert_eq!(rows, ["3|a key, 'with' \"quotes\" {}|é, \\ 'x' NULL", "1|none|", "2||none"]);
}

async fn settle_makes_no_row_of_what_is_done(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let (token, _) = installation.claim(stream, group, presence, 10).await;
    let exceptions = vec![trouble(1, ExceptionNext::Done), trouble(2, retry(MINUTE)), trouble(3, ExceptionNext::Done)];
    let params = SettleParams { exceptions, ..settle_params(stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    assert_eq!(installation.troubles(stream, group).await, ["2 ready 1/1/0/0"]);
}

/// A range that runs a second time can name a message that has a row already.
async fn settle_leaves_a_row_that_is_there_as_it_is(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let (first, _) = installation.claim(stream, group, presence, 5).await;
    let (second, _) = installation.claim(stream, group, presence, 5).await;
    let params = SettleParams { exceptions: vec![trouble(2, dead())], ..settle_params(stream, first) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    let exceptions = vec![trouble(2, retry(MINUTE)), trouble(6, retry(MINUTE))];
    let params = SettleParams { exceptions, ..settle_params(stream, second) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    assert_eq!(installation.troubles(stream, group).await, ["2 dead 1/1/0/0", "6 ready 1/1/0/0"]);
}

async fn settle_takes_a_thousand_exceptions_at_once(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    installation.produce(stream, 1000).await;
    let (token, _) = installation.claim(stream, group, presence, 2000).await;
    let exceptions = (1..=1000).map(|id| trouble(id, retry(MINUTE))).collect();
    let params = SettleParams { exceptions, ..settle_params(stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!(position.ready, 1000);
}

async fn settle_by_an_owner_that_lost_the_range_changes_nothing(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    let (lost, _) = installation.claim(stream, group, presence, 10).await;
    let done = [ProgressParams { token: lost, done: vec![(0, 4)] }];
    backend.lease_report(stream, group, presence, &[lost], &done).await.expect("a report");
    installation.expire(presence).await;
    let thief = installation.presence().await;
    let taken = LeaseToken::mint();
    backend.lease_reclaim(stream, group, thief, taken).await.expect("a look").expect("a range without owner");
    assert!(backend.presence_renew(presence, crate::harness::LONG).await.expect("the late owner is back"));

    let exceptions = vec![trouble(5, retry(MINUTE)), trouble(6, dead())];
    let late = SettleParams { exceptions, parked: vec![(2, 0, 10)], ..settle_params(stream, lost) };
    assert!(!backend.lease_settle(&late).await.expect("no settlement"));
    assert!(!backend.lease_settle(&settle_params(stream, lost)).await.expect("no settlement"));
    assert!(installation.troubles(stream, group).await.is_empty());
    assert!(installation.parked(stream, group).await.is_empty());
    let lease = backend.lease_find(stream, taken).await.expect("a look").expect("the new owner's lease");
    assert_eq!((lease.low, lease.high, lease.done), (0, 10, vec![(0, 4)]));

    let owners = SettleParams { exceptions: vec![trouble(7, retry(MINUTE))], ..settle_params(stream, taken) };
    assert!(backend.lease_settle(&owners).await.expect("the owner's settlement"));
    assert!(!backend.lease_settle(&late).await.expect("no settlement"));
    assert_eq!(installation.troubles(stream, group).await, ["7 ready 1/1/0/0"]);
}

/// Nobody else ran the messages: throwing their outcomes away would only run them again.
async fn settle_of_an_expired_owner_counts_until_somebody_takes_over(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let (token, _) = installation.claim(stream, group, presence, 10).await;
    installation.expire(presence).await;
    let params = SettleParams { exceptions: vec![trouble(5, retry(MINUTE))], ..settle_params(stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    assert_eq!(installation.troubles(stream, group).await, ["5 ready 1/1/0/0"]);
    let thief = installation.presence().await;
    let taken = installation.backend.lease_reclaim(stream, group, thief, LeaseToken::mint()).await.expect("a look");
    assert!(taken.is_none(), "{taken:?}");
}

async fn settle_and_a_takeover_never_both_win(installation: &Installation) {
    let (stream, group, _) = setting(installation).await;
    let (mine, theirs) = (installation.another().await, installation.another().await);
    let thief = installation.presence().await;
    for round in 1..=40 {
        let owner = installation.presence().await;
        let (token, _) = installation.claim(stream, group, owner, 1).await;
        installation.expire(owner).await;
        let params = SettleParams { exceptions: vec![trouble(round, retry(MINUTE))], ..settle_params(stream, token) };
        let (settled, taken) =
            tokio::join!(mine.lease_settle(&params), theirs.lease_reclaim(stream, group, thief, LeaseToken::mint()),);
        let (settled, taken) = (settled.expect("an answer"), taken.expect("an answer"));
        assert!(settled != taken.is_some(), "round {round}: settled {settled}, taken over {taken:?}");
        let row = format!("{round} ready 1/1/0/0");
        assert_eq!(installation.troubles(stream, group).await.contains(&row), settled, "round {round}");
        if let Some(lease) = taken {
            assert!(mine.lease_settle(&settle_params(stream, lease.token)).await.expect("the owner's settlement"));
        }
    }
}

async fn settle_parks_what_the_build_cannot_read(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let (token, _) = installation.claim(stream, group, presence, 10).await;
    let parked = vec![(2, 0, 10), (3, 4, 8)];
    let params = SettleParams { parked, exceptions: vec![trouble(9, dead())], ..settle_params(stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    assert_eq!(installation.parked(stream, group).await, ["2 (0, 10]", "3 (4, 8]"]);
    assert_eq!(installation.troubles(stream, group).await, ["9 dead 1/1/0/0"]);
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.claimed, position.settled, position.parked), (10, 0, 2), "parked ids are not settled");
}

async fn settle_extends_a_parked_range_in_place(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let ids = format!("select count(distinct id) from {}", installation.table_of("parked_range", stream));
    for high in [5, 10, 15, 20] {
        let (token, row) = installation.claim(stream, group, presence, 5).await;
        assert_eq!(row.high, high);
        let parked = vec![(2, high - 5, high), (3, high - 5, high)];
        let params = SettleParams { parked, ..settle_params(stream, token) };
        assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
        assert_eq!(installation.parked(stream, group).await, [format!("2 (0, {high}]"), format!("3 (0, {high}]")]);
        assert_eq!(installation.number(&ids).await, 2, "one row a version, however many ranges");
    }
}

async fn settle_extends_contiguous_ranges_only(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let other = installation.group(stream, "others").await;
    let settle = async |group, parked: Vec<(i32, i64, i64)>| {
        let (token, _) = installation.claim(stream, group, presence, 5).await;
        let params = SettleParams { parked, ..settle_params(stream, token) };
        assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    };
    settle(group, vec![(2, 0, 5)]).await;
    settle(other, vec![(2, 0, 5), (4, 0, 5)]).await;
    settle(group, vec![(3, 5, 10), (4, 5, 10)]).await;
    assert_eq!(installation.parked(stream, group).await, ["2 (0, 5]", "3 (5, 10]", "4 (5, 10]"], "another version");
    settle(group, vec![(2, 10, 15)]).await;
    let expected = ["2 (0, 5]", "3 (5, 10]", "4 (5, 10]", "2 (10, 15]"];
    assert_eq!(installation.parked(stream, group).await, expected, "a gap");
    settle(group, vec![(2, 15, 20), (3, 15, 20)]).await;
    let expected = ["2 (0, 5]", "3 (5, 10]", "4 (5, 10]", "2 (10, 20]", "3 (15, 20]"];
    assert_eq!(installation.parked(stream, group).await, expected);
    assert_eq!(installation.parked(stream, other).await, ["2 (0, 5]", "4 (0, 5]"], "another group's range stayed");
}
