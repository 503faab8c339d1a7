//! The rows by which consuming processes are known to be alive: `presence_enter`, `presence_renew`, `presence_leave`.

use std::time::{Duration, Instant};

use sqlstreams_runtime::backend::PresenceParams;
use sqlstreams_runtime::identity::{GroupId, LeaseToken, PresenceId, StreamId};

use crate::harness::{Installation, LONG, PATIENCE, on_both, presence_params};

on_both! {
    enter_makes_a_process_present_until_its_ttl_is_over,
    enter_again_extends_the_presence,
    enter_keeps_what_is_said_about_the_process,
    renew_extends_a_presence,
    renew_extends_a_presence_that_expired,
    renew_can_end_a_presence_sooner,
    renew_says_when_the_row_is_gone,
    leave_lets_others_take_everything_at_once,
    leave_of_one_process_leaves_others_present,
    leave_of_an_unknown_process_is_no_error,
}

/// A process whose presence lasts for `ttl` claims five ids; whether they can be taken over shows whether it lives.
async fn owner(installation: &Installation, ttl: Duration) -> (StreamId, GroupId, PresenceId) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    installation.produce(stream, 5).await;
    let params = presence_params(ttl);
    installation.backend.presence_enter(&params).await.expect("a presence");
    installation.claim(stream, group, params.id, 5).await;
    (stream, group, params.id)
}

async fn can_be_taken(installation: &Installation, stream: StreamId, group: GroupId) -> bool {
    let thief = installation.presence().await;
    let taken = installation.backend.lease_reclaim(stream, group, thief, LeaseToken::mint()).await.expect("a look");
    taken.is_some()
}

/// Returns when the range can be taken: SQLite's clock counts milliseconds, so an end that has come shows in the next one.
async fn is_taken_in_time(installation: &Installation, stream: StreamId, group: GroupId) {
    let deadline = Instant::now() + PATIENCE;
    while !can_be_taken(installation, stream, group).await {
        assert!(Instant::now() < deadline, "the presence did not end");
    }
}

async fn enter_makes_a_process_present_until_its_ttl_is_over(installation: &Installation) {
    let (stream, group, _) = owner(installation, LONG).await;
    assert!(!can_be_taken(installation, stream, group).await, "the process lives");
    let over = presence_params(Duration::ZERO);
    installation.backend.presence_enter(&over).await.expect("a presence");
    installation.produce(stream, 1).await;
    let (_, row) = installation.claim(stream, group, over.id, 5).await;
    assert_eq!((row.low, row.high), (5, 6));
    is_taken_in_time(installation, stream, group).await;
    assert!(!can_be_taken(installation, stream, group).await, "the first one lives");
}

async fn enter_again_extends_the_presence(installation: &Installation) {
    let (stream, group, id) = owner(installation, Duration::ZERO).await;
    let again = PresenceParams { id, ..presence_params(LONG) };
    for _ in 0..2 {
        installation.backend.presence_enter(&again).await.expect("a presence");
    }
    assert!(!can_be_taken(installation, stream, group).await);
    assert_eq!(installation.count(&installation.table("presence")).await, 2, "one row a process: it and the thief");
}

async fn enter_keeps_what_is_said_about_the_process(installation: &Installation) {
    let first = PresenceParams {
        build: "9.8.7",
        process: "mailer 'of' \"é\"".to_owned(),
        readable: r#"[["events",1]]"#.to_owned(),
        ..presence_params(LONG)
    };
    installation.backend.presence_enter(&first).await.expect("a presence");
    let columns = format!("build || '|' || process || '|' || readable from {}", installation.table("presence"));
    let stored = installation.texts(&format!("select {columns}")).await;
    assert_eq!(stored, ["9.8.7|mailer 'of' \"é\"|[[\"events\",1]]"]);
    let more = PresenceParams { readable: r#"[["events",1],["events",2]]"#.to_owned(), ..first };
    installation.backend.presence_enter(&more).await.expect("a presence");
    let stored = installation.texts(&format!("select {columns}")).await;
    assert_eq!(stored, ["9.8.7|mailer 'of' \"é\"|[[\"events\",1],[\"events\",2]]"], "a group more is read now");
}

async fn renew_extends_a_presence(installation: &Installation) {
    let (stream, group, id) = owner(installation, Duration::from_secs(30)).await;
    let left = async || {
        let presence = installation.table("presence");
        let seconds = if installation.is_postgres() {
            format!(
                "select extract(epoch from expires_at - clock_timestamp())::bigint from {presence} where process = 'a test'"
            )
        } else {
            format!("select cast(expires_at / 1000000.0 - unixepoch('subsec') as integer) from {presence}")
        };
        installation.number(&seconds).await
    };
    assert!((1..=30).contains(&left().await), "as long as was asked for");
    for _ in 0..2 {
        assert!(installation.backend.presence_renew(id, LONG).await.expect("a renewal"));
        assert!((3500..=3600).contains(&left().await), "counted from now");
    }
    assert!(!can_be_taken(installation, stream, group).await);
}

async fn renew_extends_a_presence_that_expired(installation: &Installation) {
    let (stream, group, id) = owner(installation, Duration::ZERO).await;
    assert!(installation.backend.presence_renew(id, LONG).await.expect("a renewal"));
    assert!(!can_be_taken(installation, stream, group).await, "it is back, and nobody took its range meanwhile");
}

async fn renew_can_end_a_presence_sooner(installation: &Installation) {
    let (stream, group, id) = owner(installation, LONG).await;
    assert!(installation.backend.presence_renew(id, Duration::ZERO).await.expect("a renewal"));
    is_taken_in_time(installation, stream, group).await;
}

async fn renew_says_when_the_row_is_gone(installation: &Installation) {
    let (_, _, id) = owner(installation, LONG).await;
    assert!(!installation.backend.presence_renew(PresenceId::mint(), LONG).await.expect("an answer"));
    installation.execute(&format!("delete from {}", installation.table("presence"))).await;
    assert!(!installation.backend.presence_renew(id, LONG).await.expect("an answer"));
    assert_eq!(installation.count(&installation.table("presence")).await, 0, "a renewal makes no row");
    let again = PresenceParams { id, ..presence_params(LONG) };
    installation.backend.presence_enter(&again).await.expect("a presence");
    assert!(installation.backend.presence_renew(id, LONG).await.expect("a renewal"));
}

async fn leave_lets_others_take_everything_at_once(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    installation.produce(stream, 6).await;
    let params = presence_params(LONG);
    installation.backend.presence_enter(&params).await.expect("a presence");
    for _ in 0..3 {
        installation.claim(stream, group, params.id, 2).await;
    }
    for _ in 0..2 {
        installation.backend.presence_leave(params.id).await.expect("an end");
    }
    for _ in 0..3 {
        assert!(can_be_taken(installation, stream, group).await);
    }
}

async fn leave_of_one_process_leaves_others_present(installation: &Installation) {
    let (stream, group, _) = owner(installation, LONG).await;
    let other = installation.presence().await;
    installation.backend.presence_leave(other).await.expect("an end");
    assert!(!can_be_taken(installation, stream, group).await);
}

async fn leave_of_an_unknown_process_is_no_error(installation: &Installation) {
    installation.backend.presence_leave(PresenceId::mint()).await.expect("nothing to end");
    assert_eq!(installation.count(&installation.table("presence")).await, 0);
}
