//! Draining a backlog, against a bare range read with decoding of as many rows.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sqlstreams::Outcome;
use tokio::sync::Notify;

use crate::options::Options;
use crate::payload::{self, Orders};
use crate::produce::{BATCH, CALLERS, produce_batch};
use crate::run::{self, Pairs, Result, Run};
use crate::yardstick::Yardstick;

/// One group drains the backlog.
pub async fn drain<Db: Yardstick>(place: &Db::Place, options: &Options) -> Result<Pairs> {
    let bare = async || bare::<Db>(place, options.backlog).await;
    run::pairs("drain", options.pairs, bare, async || ours::<Db>(place, options.backlog).await).await
}

async fn bare<Db: Yardstick>(place: &Db::Place, backlog: u64) -> Result<Run> {
    let setting = Db::open(place).await?;
    let pool = setting.writer.clone();
    let fill = move || {
        let pool = pool.clone();
        async move {
            Db::insert(&pool, payload::encoded_batch(BATCH)?).await?;
            Ok(BATCH)
        }
    };
    let stored = run::repeat(CALLERS, rounds(backlog), fill).await?;
    let wal = setting.wal().await?;
    let reader = setting.reader.clone();
    let start = Instant::now();
    let reading = tokio::spawn(async move {
        let (mut messages, mut last) = (0, 0);
        while messages < stored {
            let read = Db::read(&reader, last, i64::MAX, |order| drop(black_box(order))).await?;
            if read.rows == 0 {
                return Err("rows are missing in the bare table".into());
            }
            messages += read.rows;
            last = read.last;
        }
        Ok(messages)
    });
    let messages: Result<u64> = reading.await?;
    let (messages, took) = (messages?, start.elapsed());
    let wal = setting.wal_each(wal, messages).await?;
    setting.close().await;
    Ok(Run { messages, took, wal })
}

/// The time includes the consumer's start: registration and the first claim.
async fn ours<Db: Yardstick>(place: &Db::Place, backlog: u64) -> Result<Run> {
    let setting = Db::open(place).await?;
    let producer = Arc::new(setting.client.producer().await?);
    let stored = run::repeat(CALLERS, rounds(backlog), move || produce_batch(Arc::clone(&producer))).await?;
    let wal = setting.wal().await?;
    let (handled, drained) = (AtomicU64::new(0), Arc::new(Notify::new()));
    let last = Arc::clone(&drained);
    let start = Instant::now();
    let consumer = setting.client.consumer().group_fn::<Orders, _, _>(move |order, _delivery| {
        black_box(order);
        if handled.fetch_add(1, Ordering::Relaxed) + 1 == stored {
            last.notify_one();
        }
        std::future::ready(Ok(Outcome::Done))
    });
    let mut took = None;
    let shutdown = async {
        drained.notified().await;
        took = Some(start.elapsed());
    };
    consumer.run_until(shutdown).await?;
    let took = took.ok_or("the consumer ended before the backlog did")?;
    // The consumer has ended, so that its last settlement is in the figure.
    let wal = setting.wal_each(wal, stored).await?;
    setting.close().await;
    Ok(Run { messages: stored, took, wal })
}

/// Batches of each caller.
fn rounds(backlog: u64) -> u64 {
    (backlog / BATCH / CALLERS as u64).max(1)
}
