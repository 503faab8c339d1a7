//! Idempotency keys that expire: `idempotency_sweep`.

use std::time::Duration;

use sqlstreams_runtime::Timestamp;
use sqlstreams_runtime::backend::{ProducedRow, SweepParams, SweepRow};
use sqlstreams_runtime::message::{Deliver, ProduceItem};

use crate::harness::{DAY, Installation, item, on_both};

on_both! {
    sweep_removes_what_expired_and_frees_the_keys,
    sweep_keeps_the_key_of_a_delayed_message_until_after_it_is_due,
    sweep_stops_at_its_limit_and_goes_on_from_where_it_was,
}

async fn sweep_removes_what_expired_and_frees_the_keys(installation: &Installation) {
    let stream = installation.stream("events").await;
    let short = ProduceItem { keep: DAY / 24, ..item(Some(1), 1) };
    installation.produce_with(stream, &[short, item(Some(2), 2)]).await;
    let sweep = async |later: Duration| {
        let now = Some(Timestamp(installation.now().await).plus(later));
        let params = SweepParams { stream, since: None, limit: 100, now };
        installation.backend.idempotency_sweep(&params).await.expect("an answer").swept
    };
    assert_eq!(sweep(Duration::ZERO).await, 0);
    assert_eq!(sweep(DAY / 12).await, 1);
    let rows = installation.produce_with(stream, &[item(Some(1), 9), item(Some(2), 2)]).await;
    assert!(matches!(rows[0], ProducedRow::Message(_)), "the key is free: {rows:?}");
    assert!(matches!(rows[1], ProducedRow::Duplicate(_)), "the other is kept: {rows:?}");
    assert_eq!(sweep(DAY * 2).await, 2);
    assert_eq!(sweep(DAY * 2).await, 0);
}

async fn sweep_keeps_the_key_of_a_delayed_message_until_after_it_is_due(installation: &Installation) {
    let stream = installation.stream("events").await;
    let week = DAY * 7;
    installation.delay(stream, ProduceItem { deliver: Deliver::After(week), ..item(Some(1), 1) }).await;
    for (later, swept) in [(DAY * 2, 0), (week, 0), (week + DAY / 2, 0), (week + DAY * 2, 1)] {
        let now = Some(Timestamp(installation.now().await).plus(later));
        let params = SweepParams { stream, since: None, limit: 100, now };
        let row = installation.backend.idempotency_sweep(&params).await.expect("an answer");
        assert_eq!(row.swept, swept, "{later:?} later");
    }
}

async fn sweep_stops_at_its_limit_and_goes_on_from_where_it_was(installation: &Installation) {
    let stream = installation.stream("events").await;
    let batch: Vec<_> = (0..25).map(|key| item(Some(key), 1)).collect();
    installation.produce_with(stream, &batch).await;
    let now = Some(Timestamp(installation.now().await).plus(DAY * 2));
    let mut since = None;
    let mut swept = Vec::new();
    loop {
        let params = SweepParams { stream, since, limit: 10, now };
        let row = installation.backend.idempotency_sweep(&params).await.expect("an answer");
        swept.push(row.swept);
        if row == SweepRow::default() {
            break;
        }
        since = row.reached;
    }
    assert_eq!(swept, [10, 10, 5, 0]);
}
