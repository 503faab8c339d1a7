//! The delivery log: `delivery_list`, `delivery_append`, and what settlements write.

use std::time::Duration;

use sqlstreams_runtime::backend::{AttemptStatus, ExceptionNext, ExceptionSettleParams, SettleParams};
use sqlstreams_runtime::identity::{LeaseToken, MessageId};
use sqlstreams_runtime::schema::DeliveryLog;

use crate::exception::{MINUTE, NOW, Setting, ids};
use crate::harness::{Installation, on_both, retry, settle_params, trouble};

on_both! {
    list_gives_the_attempts_of_one_message_the_newest_first,
    append_logs_the_handled_messages_of_a_lease_that_is_ones_own,
    a_settled_range_logs_what_its_group_asks_for,
    a_range_that_was_lost_logs_nothing,
    a_settled_exception_logs_what_its_group_asks_for,
    an_exception_that_was_lost_logs_nothing,
}

fn later() -> ExceptionNext {
    ExceptionNext::Later { after: MINUTE }
}

fn dead() -> ExceptionNext {
    ExceptionNext::Dead { error: "no use".to_owned() }
}

async fn settle_range(setting: &Setting<'_>, log: DeliveryLog) {
    let (token, row) = setting.installation.claim(setting.stream, setting.group, setting.presence, 6).await;
    let id = |at: i64| row.low + at;
    let exceptions = vec![
        trouble(id(1), retry(MINUTE)),
        trouble(id(2), later()),
        trouble(id(3), dead()),
        trouble(id(4), ExceptionNext::Return),
    ];
    let handled = if log == DeliveryLog::All { vec![MessageId(id(5)), MessageId(id(6))] } else { Vec::new() };
    let params = SettleParams { exceptions, log, handled, now: Some(NOW), ..settle_params(setting.stream, token) };
    for settled in [true, false] {
        let answer = setting.installation.backend.lease_settle(&params).await.expect("an answer");
        assert_eq!(answer, settled, "a repeat logs nothing");
    }
}

async fn attempts(setting: &Setting<'_>) -> Vec<String> {
    setting.installation.attempts(setting.stream, setting.group).await
}

async fn a_settled_range_logs_what_its_group_asks_for(installation: &Installation) {
    let setting = Setting::new(installation).await;
    settle_range(&setting, DeliveryLog::Off).await;
    assert!(attempts(&setting).await.is_empty());
    settle_range(&setting, DeliveryLog::Failures).await;
    assert_eq!(attempts(&setting).await, ["7 #1 retry: it failed", "8 #1 later", "9 #1 dead: no use"]);
    settle_range(&setting, DeliveryLog::All).await;
    let expected = ["13 #1 retry: it failed", "14 #1 later", "15 #1 dead: no use", "17 #1 done", "18 #1 done"];
    assert_eq!(attempts(&setting).await[3..], expected);
}

async fn a_range_that_was_lost_logs_nothing(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let (lost, _) = installation.claim(setting.stream, setting.group, setting.presence, 6).await;
    installation.expire(setting.presence).await;
    let presence = installation.presence().await;
    let backend = &installation.backend;
    let taken = backend.lease_reclaim(setting.stream, setting.group, presence, LeaseToken::mint()).await;
    assert!(taken.expect("a look").is_some());
    let params = SettleParams {
        exceptions: vec![trouble(1, retry(MINUTE))],
        log: DeliveryLog::All,
        handled: vec![MessageId(2)],
        ..settle_params(setting.stream, lost)
    };
    assert!(!backend.lease_settle(&params).await.expect("an answer"));
    backend.delivery_append(setting.stream, lost, &[MessageId(3)]).await.expect("an answer");
    assert!(attempts(&setting).await.is_empty());
}

async fn settle_exceptions(setting: &Setting<'_>, token: LeaseToken, first: i64, log: DeliveryLog) {
    let exceptions = vec![
        trouble(first, ExceptionNext::Done),
        trouble(first + 1, retry(9 * MINUTE)),
        trouble(first + 2, ExceptionNext::Later { after: 9 * MINUTE }),
        trouble(first + 3, dead()),
        trouble(first + 4, ExceptionNext::Return),
    ];
    let (stream, group) = (setting.stream, setting.group);
    let params = ExceptionSettleParams { stream, group, token, exceptions, log, now: Some(NOW.plus(MINUTE)) };
    for _ in 0..2 {
        setting.installation.backend.exception_settle(&params).await.expect("a settlement; a repeat logs nothing");
    }
}

async fn a_settled_exception_logs_what_its_group_asks_for(installation: &Installation) {
    let due = |id: i64| MINUTE * u32::try_from((id + 4) / 5).expect("small");
    let setting = Setting::with_trouble(installation, (1..=15).map(|id| trouble(id, retry(due(id)))).collect()).await;
    let mut seen = Vec::new();
    for (turn, log) in [DeliveryLog::Off, DeliveryLog::Failures, DeliveryLog::All].into_iter().enumerate() {
        let first = 5 * i64::try_from(turn).expect("small") + 1;
        let (token, taken) = setting.take(due(first), 10).await;
        assert!(ids(&taken).contains(&first) && ids(&taken).contains(&(first + 4)), "{:?}", ids(&taken));
        settle_exceptions(&setting, token, first, log).await;
        let log = attempts(&setting).await;
        seen.push(log[seen.iter().map(Vec::len).sum::<usize>()..].to_vec());
    }
    assert!(seen[0].is_empty());
    assert_eq!(seen[1], ["7 #2 retry: it failed", "8 #2 later", "9 #2 dead: no use"]);
    assert_eq!(seen[2], ["11 #2 done", "12 #2 retry: it failed", "13 #2 later", "14 #2 dead: no use"]);
}

async fn an_exception_that_was_lost_logs_nothing(installation: &Installation) {
    let setting = Setting::with_trouble(installation, (1..=5).map(|id| trouble(id, retry(MINUTE))).collect()).await;
    assert_eq!(setting.take(MINUTE, 10).await.1.len(), 5);
    settle_exceptions(&setting, LeaseToken::mint(), 1, DeliveryLog::All).await;
    assert!(attempts(&setting).await.is_empty());
}

async fn list_gives_the_attempts_of_one_message_the_newest_first(installation: &Installation) {
    let setting = Setting::new(installation).await;
    settle_range(&setting, DeliveryLog::All).await;
    let list = async |id, limit| {
        let listed = installation.backend.delivery_list(setting.stream, setting.group, MessageId(id), limit).await;
        listed.expect("an answer")
    };
    for (turn, next) in [later(), retry(MINUTE), ExceptionNext::Done].into_iter().enumerate() {
        let turn = u32::try_from(turn).expect("small");
        let (token, taken) = setting.take(MINUTE * (turn + 1), 10).await;
        assert!(ids(&taken).contains(&1));
        let (stream, group, exceptions) = (setting.stream, setting.group, vec![trouble(1, next)]);
        let now = NOW.plus(MINUTE * turn);
        let params = ExceptionSettleParams { stream, group, token, exceptions, log: DeliveryLog::All, now: Some(now) };
        installation.backend.exception_settle(&params).await.expect("a settlement");
    }
    let all = list(1, 10).await;
    let seen = all.iter().map(|row| (row.attempt, row.status, row.error.as_deref(), row.at));
    let expected = [
        (4, AttemptStatus::Done, None, NOW.plus(2 * MINUTE)),
        (3, AttemptStatus::Retry, Some("it failed"), NOW.plus(MINUTE)),
        (2, AttemptStatus::Later, None, NOW),
        (1, AttemptStatus::Retry, Some("it failed"), NOW),
    ];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    assert_eq!(list(1, 2).await, all[..2]);
    assert_eq!(list(3, 10).await[0].status, AttemptStatus::Dead);
    assert_eq!(list(99, 10).await, []);
    let other = installation.group(setting.stream, "others").await;
    let of_others = installation.backend.delivery_list(setting.stream, other, MessageId(1), 10).await;
    assert_eq!(of_others.expect("an answer"), []);
}

async fn append_logs_the_handled_messages_of_a_lease_that_is_ones_own(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let (token, _) = installation.claim(setting.stream, setting.group, setting.presence, 6).await;
    let append = async |token, ids: &[i64]| {
        let handled: Vec<_> = ids.iter().copied().map(MessageId).collect();
        installation.backend.delivery_append(setting.stream, token, &handled).await.expect("an answer");
    };
    append(token, &[]).await;
    append(LeaseToken::mint(), &[1]).await;
    assert!(attempts(&setting).await.is_empty());
    let before = installation.now().await;
    append(token, &[2, 4]).await;
    assert_eq!(attempts(&setting).await, ["2 #1 done", "4 #1 done"]);
    let row = installation.backend.delivery_list(setting.stream, setting.group, MessageId(4), 1).await;
    let at = row.expect("an answer")[0].at;
    let slack = Duration::from_millis(5).as_micros() as i64;
    assert!((before - slack..=installation.now().await + slack).contains(&at.0), "by the database's clock");
}
