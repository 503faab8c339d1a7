//! Producing and consuming at the same time, with a bounded backlog.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlstreams::{BoxError, Outcome};
use tokio::task::JoinSet;

use crate::options::Options;
use crate::payload::{self, Orders};
use crate::produce::{BATCH, CALLERS, produce_batch};
use crate::run::{self, Pairs, Result, Run};
use crate::yardstick::{Horizon, Setting, Yardstick};

/// Producers pause while more messages than this wait.
const OUTSTANDING: u64 = 20_000;
/// What is left over when the producers have ended is handled in this time, or the run has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Four callers produce batches and one group handles the messages, against both bare statements.
pub async fn together<Db: Yardstick>(place: &Db::Place, options: &Options) -> Result<Pairs> {
    let length = options.together;
    let bare = async || bare::<Db>(place, length).await;
    run::pairs("together", options.pairs, bare, async || ours::<Db>(place, length).await).await
}

/// Messages on their way.
#[derive(Default)]
struct Flow {
    sent: AtomicU64,
    handled: AtomicU64,
}

impl Flow {
    fn outstanding(&self) -> u64 {
        self.sent.load(Ordering::Relaxed).saturating_sub(self.handled.load(Ordering::Relaxed))
    }

    async fn caught_up(&self) -> Result<()> {
        let start = Instant::now();
        while self.outstanding() > 0 {
            if start.elapsed() > PATIENCE {
                return Err(format!("{} messages were not handled", self.outstanding()).into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Lets the callers repeat `batch`, and takes the figures when they have ended. The write-ahead log is read
    /// after the rest was handled, so that it holds both sides of each message.
    async fn measure<Db, C, F>(self: &Arc<Self>, setting: &Setting<Db>, length: Duration, batch: C) -> Result<Run>
    where
        Db: Yardstick,
        C: Fn() -> F + Clone + Send + 'static,
        F: Future<Output = Result<u64>> + Send,
    {
        let start = setting.wal().await?;
        let flow = Arc::clone(self);
        let call = move || {
            let (flow, batch) = (Arc::clone(&flow), batch.clone());
            async move {
                if flow.outstanding() > OUTSTANDING {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    return Ok(0);
                }
                let messages = batch().await?;
                flow.sent.fetch_add(messages, Ordering::Relaxed);
                Ok(messages)
            }
        };
        let (_sent, took) = run::callers(CALLERS, length, call).await?;
        let messages = self.handled.load(Ordering::Relaxed);
        self.caught_up().await?;
        let wal = setting.wal_each(start, self.sent.load(Ordering::Relaxed)).await?;
        Ok(Run { messages, took, wal })
    }
}

async fn bare<Db: Yardstick>(place: &Db::Place, length: Duration) -> Result<Run> {
    let setting = Db::open(place).await?;
    let (flow, horizon) = (Arc::new(Flow::default()), Arc::new(Horizon::default()));
    // Ends the reader with this function.
    let mut reading = JoinSet::new();
    reading.spawn(read::<Db>(setting.reader.clone(), Arc::clone(&flow), Arc::clone(&horizon)));
    let pool = setting.writer.clone();
    let batch = move || {
        let (pool, horizon) = (pool.clone(), Arc::clone(&horizon));
        async move {
            let payloads = payload::encoded_batch(BATCH)?;
            let ticket = horizon.begin();
            horizon.end(ticket, Db::insert(&pool, payloads).await?);
            Ok(BATCH)
        }
    };
    let run = tokio::select! {
        run = flow.measure(&setting, length, batch) => run?,
        Some(failure) = reading.join_next() => return Err(failure?),
    };
    reading.shutdown().await;
    setting.close().await;
    Ok(run)
}

/// Polls by id until it fails.
async fn read<Db: Yardstick>(pool: sqlstreams::sqlx::Pool<Db>, flow: Arc<Flow>, horizon: Arc<Horizon>) -> BoxError {
    let mut last = 0;
    loop {
        let high = horizon.safe();
        let read = if high > last {
            Db::read(&pool, last, high, |order| drop(black_box(order))).await
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        match read {
            Ok(read) => {
                flow.handled.fetch_add(read.rows, Ordering::Relaxed);
                last = read.last;
            }
            Err(err) => return err,
        }
    }
}

async fn ours<Db: Yardstick>(place: &Db::Place, length: Duration) -> Result<Run> {
    let setting = Db::open(place).await?;
    let flow = Arc::new(Flow::default());
    let producer = Arc::new(setting.client.producer().await?);
    let handled = Arc::clone(&flow);
    let consumer = setting.client.consumer().group_fn::<Orders, _, _>(move |order, _delivery| {
        black_box(order);
        handled.handled.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Outcome::Done))
    });
    let mut run = None;
    let shutdown = async {
        run = Some(flow.measure(&setting, length, move || produce_batch(Arc::clone(&producer))).await);
    };
    consumer.run_until(shutdown).await?;
    let run = run.ok_or("the consumer ended before the producers did")??;
    setting.close().await;
    Ok(run)
}
