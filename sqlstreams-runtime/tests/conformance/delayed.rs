//! Messages that wait for their time: `delayed_cancel`, `delayed_promote`, `delayed_heads`.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::Timestamp;
use sqlstreams_runtime::backend::{FirstRow, ProducedRow, PromoteParams, PromoteRow};
use sqlstreams_runtime::identity::{DelayedId, StreamId};
use sqlstreams_runtime::message::{Deliver, ProduceItem};
use tokio::sync::Barrier;

use crate::harness::{self, Installation, PATIENCE, delayed, item, message, on_both};

on_both! {
    cancel_says_whether_it_was_in_time,
    cancel_frees_the_idempotency_key,
    promote_moves_what_is_due_in_the_order_of_the_times,
    promote_keeps_every_field_and_says_when_it_was_produced_and_scheduled,
    promote_stops_at_its_limit_and_goes_on,
    promote_tells_the_time_until_the_next,
    promote_by_two_processes_moves_each_message_once,
    promote_gives_consumers_what_it_moved,
    promote_and_cancel_of_one_message_agree,
    heads_change_when_something_is_delayed,
}

const MINUTE: Duration = Duration::from_secs(60);

fn params(stream: StreamId) -> PromoteParams {
    PromoteParams { stream, since: None, limit: 500, now: None }
}

async fn cancel_says_whether_it_was_in_time(installation: &Installation) {
    let stream = installation.stream("events").await;
    let ids = [1, 2, 3].map(|minutes| delayed(MINUTE * minutes, 1));
    let mut waiting = Vec::new();
    for item in ids {
        waiting.push(installation.delay(stream, item).await);
    }
    let cancel = async |id| installation.backend.delayed_cancel(stream, id).await.expect("an answer");
    assert!(cancel(waiting[1]).await);
    assert!(!cancel(waiting[1]).await, "it was cancelled before");
    assert_eq!(installation.promote_in(stream, MINUTE).await.promoted, 1);
    assert!(!cancel(waiting[0]).await, "it is in the log");
    assert!(!cancel(DelayedId(77)).await, "there is none");
    assert!(cancel(waiting[2]).await);
    assert_eq!(installation.promote_in(stream, MINUTE * 9).await, PromoteRow::default());
    assert_eq!(installation.read(stream, 0, i64::MAX).await.len(), 1);
}

async fn cancel_frees_the_idempotency_key(installation: &Installation) {
    let stream = installation.stream("events").await;
    let keyed = |key| ProduceItem { deliver: Deliver::After(MINUTE), ..item(Some(key), 1) };
    let (first, other) = (installation.delay(stream, keyed(1)).await, installation.delay(stream, keyed(2)).await);
    assert!(installation.backend.delayed_cancel(stream, first).await.expect("an answer"));
    let again = installation.delay(stream, keyed(1)).await;
    assert!(again > other);
    let duplicate = ProducedRow::Duplicate(FirstRow::Delayed(other));
    assert_eq!(installation.produce_with(stream, &[keyed(2)]).await, [duplicate], "the other key is held");
}

async fn promote_moves_what_is_due_in_the_order_of_the_times(installation: &Installation) {
    let stream = installation.stream("events").await;
    let batch = [3, 1, 5, 2, 4].map(|minutes: u32| delayed(MINUTE * minutes, minutes as usize));
    installation.produce_with(stream, &batch).await;
    assert_eq!(installation.backend.delayed_promote(&params(stream)).await.expect("an answer").promoted, 0);
    let row = installation.promote_in(stream, MINUTE * 7 / 2).await;
    assert_eq!(row.promoted, 3);
    assert!(row.reached.is_some());
    installation.produce(stream, 1).await;
    installation.promote_in(stream, MINUTE * 9).await;
    let stored = installation.read(stream, 0, i64::MAX).await;
    let payloads: Vec<_> = stored.iter().map(|row| row.payload.clone().expect("a payload")).collect();
    assert_eq!(payloads, [1, 2, 3, 0, 4, 5].map(|number| message(number).payload.into_bytes()));
}

async fn promote_keeps_every_field_and_says_when_it_was_produced_and_scheduled(installation: &Installation) {
    let stream = installation.stream("events").await;
    let mut whole = delayed(MINUTE, 1);
    whole.message.routing_key = Some("orders.eu".to_owned());
    whole.message.message_key = Some("é".to_owned());
    whole.message.headers = Some(r#"{"a": "b"}"#.to_owned());
    let before = installation.now().await;
    installation.delay(stream, whole).await;
    let after = installation.now().await;
    installation.promote_in(stream, MINUTE * 10).await;
    let stored = installation.read(stream, 0, i64::MAX).await.remove(0);
    assert_eq!(stored.routing_key.as_deref(), Some("orders.eu".as_bytes()));
    assert_eq!(stored.message_key.as_deref(), Some("é".as_bytes()));
    assert_eq!(stored.headers.as_deref(), Some(r#"{"a": "b"}"#.as_bytes()));
    assert_eq!(stored.payload.as_deref(), Some(message(1).payload.as_bytes()));
    assert_eq!((stored.schema_version, stored.codec), (1, 0));
    // SQLite keeps milliseconds.
    let close = |time: i64, later: Duration| {
        let later = i64::try_from(later.as_micros()).expect("a short time");
        (before + later - 1000..=after + later + 1000).contains(&time)
    };
    assert!(close(stored.created_at.0, Duration::ZERO), "when it was produced: {stored:?}");
    assert!(close(stored.scheduled_at.expect("it was scheduled").0, MINUTE), "{stored:?}");
    // Retention counts from when it entered the log.
    let log = installation.table_of("message_log", stream);
    let entered = if installation.is_postgres() {
        format!("select (extract(epoch from created_at) * 1000000)::bigint from {log}")
    } else {
        format!("select created_at from {log}")
    };
    assert!(
        close(installation.number(&entered).await - 60_000_000, MINUTE * 9)
            || installation.number(&entered).await > after
    );
}

async fn promote_stops_at_its_limit_and_goes_on(installation: &Installation) {
    let stream = installation.stream("events").await;
    let batch: Vec<_> = (0..25).map(|number| delayed(MINUTE, number)).collect();
    installation.produce_with(stream, &batch).await;
    let now = Some(Timestamp(installation.now().await).plus(MINUTE * 2));
    let mut promoted = Vec::new();
    let mut since = None;
    loop {
        let params = PromoteParams { since, limit: 10, now, ..params(stream) };
        let row = installation.backend.delayed_promote(&params).await.expect("an answer");
        promoted.push(row.promoted);
        if row.promoted == 0 {
            break;
        }
        since = row.reached;
    }
    assert_eq!(promoted, [10, 10, 5, 0]);
    let stored = installation.read(stream, 0, i64::MAX).await;
    let payloads: Vec<_> = stored.iter().map(|row| row.payload.clone().expect("a payload")).collect();
    assert_eq!(payloads, (0..25).map(|number| message(number).payload.into_bytes()).collect::<Vec<_>>());
}

async fn promote_tells_the_time_until_the_next(installation: &Installation) {
    let stream = installation.stream("events").await;
    let look = async || installation.backend.delayed_promote(&params(stream)).await.expect("an answer");
    assert_eq!(look().await, PromoteRow::default(), "none waits");
    installation.delay(stream, delayed(MINUTE * 10, 1)).await;
    installation.delay(stream, delayed(MINUTE, 1)).await;
    let next = look().await.next.expect("one waits");
    assert!(next <= MINUTE && next > MINUTE / 2, "{next:?}");
    let row = installation.promote_in(stream, MINUTE * 2).await;
    let next = row.next.expect("another one waits");
    assert!(row.promoted == 1 && next <= MINUTE * 8 && next > MINUTE * 7, "{row:?}");
}

async fn promote_by_two_processes_moves_each_message_once(installation: &Installation) {
    let stream = installation.stream("events").await;
    let batch: Vec<_> = (0..400).map(|number| delayed(MINUTE, number)).collect();
    installation.produce_with(stream, &batch).await;
    let now = Some(Timestamp(installation.now().await).plus(MINUTE * 2));
    let barrier = Arc::new(Barrier::new(2));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (backend, barrier) = (installation.another().await, Arc::clone(&barrier));
        tasks.spawn(async move {
            barrier.wait().await;
            let mut promoted = 0;
            // A look may find everything held by the other one.
            for _ in 0..50 {
                let params = PromoteParams { limit: 20, now, ..params(stream) };
                promoted += backend.delayed_promote(&params).await.expect("an answer").promoted;
            }
            promoted
        });
    }
    let promoted = tasks.join_all().await;
    assert_eq!(promoted.iter().sum::<i64>(), 400, "{promoted:?}");
    let stored = installation.read(stream, 0, i64::MAX).await;
    let distinct: std::collections::HashSet<_> = stored.iter().map(|row| row.payload.clone()).collect();
    assert_eq!((stored.len(), distinct.len()), (400, 400));
}

async fn promote_gives_consumers_what_it_moved(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce_with(stream, &[delayed(MINUTE, 1), item(None, 2)]).await;
    let (_, row) = installation.claim(stream, group, presence, 9).await;
    assert_eq!(installation.read(stream, row.low, row.high).await.len(), 1);
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.claimed, position.ready), (position.head, 0), "what waits is nothing to a group");
    installation.promote_in(stream, MINUTE * 2).await;
    let (_, row) = installation.claim(stream, group, presence, 9).await;
    let moved = installation.read(stream, row.low, row.high).await;
    assert_eq!(moved[0].payload.as_deref(), Some(message(1).payload.as_bytes()));
    assert_eq!(moved.len(), 1);
}

async fn promote_and_cancel_of_one_message_agree(installation: &Installation) {
    let stream = installation.stream("events").await;
    let other = installation.another().await;
    for round in 1..=30 {
        let id = installation.delay(stream, delayed(MINUTE, 1)).await;
        let now = Some(Timestamp(installation.now().await).plus(MINUTE * 2));
        let promote = PromoteParams { now, ..params(stream) };
        let (cancelled, row) =
            tokio::join!(installation.backend.delayed_cancel(stream, id), other.delayed_promote(&promote));
        let (cancelled, row) = (cancelled.expect("an answer"), row.expect("an answer"));
        assert_eq!(row.promoted, i64::from(!cancelled), "round {round}");
    }
}

async fn heads_change_when_something_is_delayed(installation: &Installation) {
    let (one, other) = (installation.stream("events").await, installation.stream("others").await);
    let heads = async || installation.backend.delayed_heads(&[one, other]).await.expect("an answer");
    let of =
        |heads: &[(StreamId, DelayedId)], stream| heads.iter().find(|(id, _)| *id == stream).map(|(_, head)| head.0);
    assert!(heads().await.iter().all(|(_, head)| head.0 == 0), "nothing was delayed");
    installation.delay(other, delayed(MINUTE, 1)).await;
    let seen = heads().await;
    assert_eq!((of(&seen, one).unwrap_or(0), of(&seen, other)), (0, Some(1)));
    installation.promote_in(other, MINUTE * 2).await;
    assert_eq!(of(&heads().await, other), Some(1), "a promotion is no news");
    installation.backend.delayed_heads(&[StreamId(77)]).await.expect("a stream that is gone is no error");
}

/// A transaction that took its time commits an older time than what was promoted before.
#[tokio::test]
async fn promote_without_its_bound_finds_what_was_committed_late() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let mut slow = installation.pool().begin().await.expect("a transaction");
    let late = [delayed(MINUTE, 1)];
    let held = installation.postgres().produce_with_in(&mut slow, &harness::produce_with(stream, &late)).await;
    held.expect("a message can be delayed in a transaction");
    installation.delay(stream, delayed(MINUTE * 2, 2)).await;
    let row = installation.promote_in(stream, MINUTE * 5).await;
    assert_eq!(row.promoted, 1);
    slow.commit().await.expect("a commit");
    let now = Some(Timestamp(installation.now().await).plus(MINUTE * 5));
    let bounded = PromoteParams { since: row.reached, now, ..params(stream) };
    assert_eq!(installation.backend.delayed_promote(&bounded).await.expect("an answer").promoted, 0);
    assert_eq!(installation.promote_in(stream, MINUTE * 5).await.promoted, 1);
}

/// A message that is being cancelled holds up nobody.
#[tokio::test]
async fn promote_passes_what_is_being_cancelled() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let held = installation.delay(stream, delayed(MINUTE, 1)).await;
    installation.delay(stream, delayed(MINUTE, 2)).await;
    let mut tx = installation.pool().begin().await.expect("a transaction");
    assert!(installation.postgres().cancel_in(&mut tx, stream, held).await.expect("an answer"));
    let row = tokio::time::timeout(PATIENCE, installation.promote_in(stream, MINUTE * 2)).await.expect("it waits not");
    assert_eq!(row.promoted, 1);
    tx.rollback().await.expect("a rollback");
    assert_eq!(installation.promote_in(stream, MINUTE * 2).await.promoted, 1, "it was not cancelled");
}
