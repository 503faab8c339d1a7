//! A group's position, and what keeps it from moving: `cursor_observe`, `cursor_advance`, `cursor_stall`,
//! `cursor_position`.

use sqlstreams_runtime::backend::{ExceptionNext, ReturnParams, SettleParams};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, StreamId};
use sqlx::AssertSqlSafe;

use crate::harness::{self, Installation, claim_params, code, message, on_both, retry, settle_params, trouble};

on_both! {
    observe_changes_nothing_when_there_is_nothing_to_pass,
    observe_of_a_missing_group_is_no_error,
    advance_follows_what_is_settled,
    advance_stops_below_what_is_in_trouble_or_parked,
    advance_beside_claims_hands_out_every_id_once,
    advance_of_a_missing_group_is_no_error,
    stall_names_nobody_when_nobody_produces,
    position_of_a_new_group_is_its_start,
    position_follows_claims_and_settlements,
    position_counts_messages_in_trouble_and_parked_ranges,
    position_is_settled_below_what_is_in_trouble,
    position_of_a_missing_group_is_refused,
}

async fn observe_changes_nothing_when_there_is_nothing_to_pass(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    for produced in [0, 5] {
        installation.produce(stream, produced).await;
        if produced > 0 {
            installation.claim(stream, group, presence, 5).await;
        }
        let cursor = format!("select max(seq) from {}", installation.table_of("consumer_group_cursor", stream));
        let before = installation.number(&cursor).await;
        for _ in 0..3 {
            installation.backend.cursor_observe(stream, &[group]).await.expect("an observation");
        }
        assert_eq!(installation.number(&cursor).await, before, "the cursor's row stayed");
        let row = installation.backend.claim_take(&claim_params(stream, group, presence, 5)).await.expect("a claim");
        assert_eq!((row.low, row.high, row.pending), (row.head, row.head, false));
    }
}

async fn observe_of_a_missing_group_is_no_error(installation: &Installation) {
    let stream = installation.stream("events").await;
    installation.produce(stream, 1).await;
    installation.backend.cursor_observe(stream, &[GroupId(77)]).await.expect("an answer");
}

async fn committed(installation: &Installation, stream: StreamId) -> i64 {
    let cursor = installation.table_of("consumer_group_cursor", stream);
    installation.number(&format!("select committed from {cursor} order by seq desc limit 1")).await
}

async fn advance(installation: &Installation, stream: StreamId, group: GroupId) -> bool {
    installation.backend.cursor_advance(stream, group).await.expect("an answer")
}

async fn advance_follows_what_is_settled(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 10).await;
    assert!(!advance(installation, stream, group).await, "nothing is claimed");
    let (first, _) = installation.claim(stream, group, presence, 4).await;
    let (second, _) = installation.claim(stream, group, presence, 4).await;
    assert!(!advance(installation, stream, group).await, "nothing is settled");
    let settle = async |token| installation.backend.lease_settle(&settle_params(stream, token)).await.expect("an end");
    settle(second).await;
    assert!(!advance(installation, stream, group).await, "the first range is open");
    settle(first).await;
    assert!(advance(installation, stream, group).await);
    assert_eq!(committed(installation, stream).await, 8);
    assert!(!advance(installation, stream, group).await, "there is no more");
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.claimed, position.settled), (8, 8));
    let (_, row) = installation.claim(stream, group, presence, 4).await;
    assert_eq!((row.low, row.high), (8, 10), "the claims go on");
}

async fn advance_stops_below_what_is_in_trouble_or_parked(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 10).await;
    let (token, _) = installation.claim(stream, group, presence, 10).await;
    let mut params = settle_params(stream, token);
    params.exceptions.push(trouble(3, ExceptionNext::Dead { error: "no".to_owned() }));
    params.exceptions.push(trouble(5, retry(std::time::Duration::ZERO)));
    params.parked.push((2, 7, 9));
    assert!(installation.backend.lease_settle(&params).await.expect("an end"));
    assert!(advance(installation, stream, group).await);
    assert_eq!(committed(installation, stream).await, 4, "a dead letter holds nothing up, a retry does");
    let exceptions = installation.table_of("exception_queue", stream);
    installation.execute(&format!("delete from {exceptions} where message_id = 5")).await;
    assert!(advance(installation, stream, group).await);
    assert_eq!(committed(installation, stream).await, 7, "the parked range is above");
    // A message below that is made ready again moves nothing back.
    installation.execute(&format!("update {exceptions} set status = 'ready' where message_id = 3")).await;
    assert!(!advance(installation, stream, group).await);
    installation.execute(&format!("delete from {}", installation.table_of("parked_range", stream))).await;
    assert!(advance(installation, stream, group).await);
    assert_eq!(committed(installation, stream).await, 10);
}

async fn advance_beside_claims_hands_out_every_id_once(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 200).await;
    let advancing = {
        let backend = installation.another().await;
        tokio::spawn(async move {
            let mut moves = 0;
            while moves < 20 {
                moves += u32::from(backend.cursor_advance(stream, group).await.expect("an answer"));
                tokio::task::yield_now().await;
            }
        })
    };
    let mut reached = 0;
    while reached < 200 {
        let (token, row) = installation.claim(stream, group, presence, 2).await;
        assert_eq!(row.low, reached, "no id is left out or handed out twice");
        reached = row.high;
        installation.backend.lease_settle(&settle_params(stream, token)).await.expect("an end");
    }
    while !advancing.is_finished() {
        installation.produce(stream, 1).await;
        let (token, _) = installation.claim(stream, group, presence, 2).await;
        installation.backend.lease_settle(&settle_params(stream, token)).await.expect("an end");
    }
    advancing.await.expect("no panic");
    advance(installation, stream, group).await;
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!(committed(installation, stream).await, position.claimed);
}

async fn advance_of_a_missing_group_is_no_error(installation: &Installation) {
    let stream = installation.stream("events").await;
    assert!(!advance(installation, stream, GroupId(77)).await);
}

/// A rewind between the look and the move would be undone: the version that is locked must be the one that was seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advance_leaves_a_version_alone_that_another_replaces() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 10).await;
    let (token, _) = installation.claim(stream, group, presence, 10).await;
    installation.backend.lease_settle(&settle_params(stream, token)).await.expect("an end");
    let cursor = installation.table_of("consumer_group_cursor", stream);
    let mut rewind = installation.pool().begin().await.expect("a transaction");
    let steps = format!(
        "insert into {cursor} (consumer_group_id, seq, epoch, claimed, committed, proven_head)
         select consumer_group_id, seq + 1, epoch + 1, 2, 2, proven_head from {cursor};
         delete from {cursor} where epoch = 0"
    );
    sqlx::raw_sql(AssertSqlSafe(steps)).execute(&mut *rewind).await.expect("a rewind");
    let moved = tokio::time::timeout(harness::PATIENCE, advance(&installation, stream, group)).await;
    assert!(!moved.expect("it waits for nobody"));
    rewind.commit().await.expect("a commit");
    assert_eq!(committed(&installation, stream).await, 2);
    assert!(!advance(&installation, stream, group).await);
}

/// An old transaction that has written, but not to the stream, holds back every snapshot's xmin.
#[tokio::test]
async fn observe_lets_a_claim_pass_while_an_unrelated_transaction_is_open() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    let mut unrelated = installation.pool().begin().await.expect("a transaction");
    sqlx::raw_sql("select pg_current_xact_id()").execute(&mut *unrelated).await.expect("a transaction id");
    installation.produce(stream, 5).await;
    for _ in 0..20 {
        let row = installation.backend.claim_take(&claim_params(stream, group, presence, 9)).await.expect("a claim");
        assert!(row.low == row.high && row.pending, "the cheap proof waits: {row:?}");
    }
    installation.backend.cursor_observe(stream, &[group]).await.expect("an observation");
    let row = installation.backend.claim_take(&claim_params(stream, group, presence, 9)).await.expect("a claim");
    assert_eq!((row.low, row.high), (0, 5), "the exact proof passes");
    unrelated.rollback().await.expect("a rollback");
}

#[tokio::test]
async fn observe_serves_every_group_that_it_is_made_for_and_no_other() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let presence = installation.presence().await;
    let mut groups = Vec::new();
    for name in ["one", "two", "three"] {
        groups.push(installation.group(stream, name).await);
    }
    let mut unrelated = installation.pool().begin().await.expect("a transaction");
    sqlx::raw_sql("select pg_current_xact_id()").execute(&mut *unrelated).await.expect("a transaction id");
    installation.produce(stream, 5).await;
    installation.backend.cursor_observe(stream, &[groups[2], groups[0]]).await.expect("an observation");
    for (group, high) in [(groups[0], 5), (groups[1], 0), (groups[2], 5)] {
        let row = installation.backend.claim_take(&claim_params(stream, group, presence, 9)).await.expect("a claim");
        assert_eq!((row.low, row.high), (0, high));
    }
    unrelated.rollback().await.expect("a rollback");
}

async fn stall_names_nobody_when_nobody_produces(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    installation.produce(stream, 3).await;
    assert_eq!(installation.backend.cursor_stall(stream, group).await.expect("an answer"), []);
}

#[tokio::test]
async fn stall_names_the_open_producers() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let other = installation.stream("others").await;
    let group = installation.group(stream, "readers").await;
    let mut open = installation.pool().begin().await.expect("a transaction");
    sqlx::raw_sql("set local application_name = 'importer'").execute(&mut *open).await.expect("a name");
    installation.postgres().produce_in(&mut open, stream, 1, 0, &[message(0)]).await.expect("a message");
    let mut elsewhere = installation.pool().begin().await.expect("a transaction");
    installation.postgres().produce_in(&mut elsewhere, other, 1, 0, &[message(0)]).await.expect("a message");
    let (pid, xid): (i32, String) = sqlx::query_as("select pg_backend_pid(), pg_current_xact_id()::xid::text")
        .fetch_one(&mut *open)
        .await
        .expect("an answer");

    let causes = installation.backend.cursor_stall(stream, group).await.expect("an answer");
    assert_eq!(causes.len(), 1, "the other stream's producer is none of ours: {causes:?}");
    assert_eq!((causes[0].pid, causes[0].name.as_str(), causes[0].prepared), (Some(pid), "importer", false));
    assert_eq!(causes[0].transaction, xid);

    let name = format!("import-{}", installation.database().name());
    sqlx::raw_sql(AssertSqlSafe(format!("prepare transaction '{name}'"))).execute(&mut *open).await.expect("prepared");
    drop(open);
    let causes = installation.backend.cursor_stall(stream, group).await.expect("an answer");
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert_eq!((causes[0].pid, causes[0].name.as_str(), causes[0].prepared), (None, name.as_str(), true));
    assert_eq!(causes[0].transaction, xid);
    installation.execute(&format!("commit prepared '{name}'")).await;
    assert_eq!(installation.backend.cursor_stall(stream, group).await.expect("an answer"), []);
    elsewhere.rollback().await.expect("a rollback");
}

async fn position_of_a_new_group_is_its_start(installation: &Installation) {
    let stream = installation.stream("events").await;
    let early = installation.group(stream, "early").await;
    let position = installation.backend.cursor_position(stream, early).await.expect("a position");
    assert_eq!(position, Default::default());
    installation.produce(stream, 7).await;
    let position = installation.backend.cursor_position(stream, early).await.expect("a position");
    assert_eq!((position.head, position.claimed, position.settled), (7, 0, 0));
    // Retention takes messages, and no position.
    installation.execute(&format!("delete from {}", installation.table_of("message_log", stream))).await;
    let position = installation.backend.cursor_position(stream, early).await.expect("a position");
    assert_eq!((position.head, position.claimed, position.settled), (7, 0, 0));
}

async fn position_follows_claims_and_settlements(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let other = installation.group(stream, "others").await;
    let presence = installation.presence().await;
    installation.produce(stream, 20).await;
    let mut tokens = Vec::new();
    for _ in 0..4 {
        tokens.push(installation.claim(stream, group, presence, 5).await.0);
    }
    let position = async || {
        let position = installation.backend.cursor_position(stream, group).await.expect("a position");
        assert_eq!(position.head, 20);
        (position.claimed, position.settled)
    };
    assert_eq!(position().await, (20, 0));
    for (token, settled) in [(tokens[1], 0), (tokens[0], 10), (tokens[3], 10)] {
        assert!(installation.backend.lease_settle(&settle_params(stream, token)).await.expect("a settlement"));
        assert_eq!(position().await, (20, settled));
    }
    let back = [ReturnParams { token: tokens[2], done: vec![(10, 13)], exceptions: Vec::new() }];
    installation.backend.lease_return(stream, &back).await.expect("a return");
    assert_eq!(position().await, (20, 10), "what was given back is open");
    let taken = installation.backend.lease_reclaim(stream, group, presence, LeaseToken::mint()).await.expect("a look");
    let token = taken.expect("a range").token;
    assert!(installation.backend.lease_settle(&settle_params(stream, token)).await.expect("a settlement"));
    assert_eq!(position().await, (20, 20));
    let untouched = installation.backend.cursor_position(stream, other).await.expect("a position");
    assert_eq!((untouched.claimed, untouched.settled), (0, 0));
}

async fn position_counts_messages_in_trouble_and_parked_ranges(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 20).await;
    let (token, _) = installation.claim(stream, group, presence, 20).await;
    let dead = || ExceptionNext::Dead { error: "no use".to_owned() };
    let exceptions = vec![
        trouble(3, retry(harness::LONG)),
        trouble(4, ExceptionNext::Later { after: harness::LONG }),
        trouble(5, retry(harness::LONG)),
        trouble(6, dead()),
        trouble(7, dead()),
    ];
    let params =
        SettleParams { exceptions, parked: vec![(2, 8, 9), (3, 8, 9), (2, 11, 12)], ..settle_params(stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.ready, position.inflight, position.dead, position.parked), (3, 0, 2, 3));
    let queue = installation.table_of("exception_queue", stream);
    installation.execute(&format!("update {queue} set status = 'inflight' where message_id = 4")).await;
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.ready, position.inflight, position.dead, position.parked), (2, 1, 2, 3));
    let other = installation.group(stream, "others").await;
    let position = installation.backend.cursor_position(stream, other).await.expect("a position");
    assert_eq!((position.ready, position.inflight, position.dead, position.parked), (0, 0, 0, 0));
}

async fn position_is_settled_below_what_is_in_trouble(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 20).await;
    let settle = async |exceptions, parked| {
        let (token, _) = installation.claim(stream, group, presence, 5).await;
        let params = SettleParams { exceptions, parked, ..settle_params(stream, token) };
        assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
        installation.backend.cursor_position(stream, group).await.expect("a position").settled
    };
    let dead = ExceptionNext::Dead { error: "no use".to_owned() };
    assert_eq!(settle(vec![trouble(2, dead)], vec![]).await, 5, "a dead letter is settled");
    assert_eq!(settle(vec![], vec![(2, 7, 9)]).await, 7, "a parked range is not");
    let presence = installation.presence().await;
    let params = claim_params(stream, group, presence, 5);
    installation.backend.parked_take(&params, &[2]).await.expect("a look").expect("a parked range");
    assert!(installation.backend.lease_settle(&settle_params(stream, params.token)).await.expect("a settlement"));
    assert_eq!(settle(vec![trouble(14, retry(harness::LONG))], vec![]).await, 13, "nor a message that runs again");
    assert_eq!(settle(vec![], vec![]).await, 13);
}

async fn position_of_a_missing_group_is_refused(installation: &Installation) {
    let stream = installation.stream("events").await;
    assert_eq!(code(installation.backend.cursor_position(stream, GroupId(77)).await), "SQLS-0302");
}
