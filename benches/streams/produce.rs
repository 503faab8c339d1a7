//! Producing: batches by a few callers, single messages by many.

use std::sync::Arc;

use sqlstreams::Producer;

use crate::options::Options;
use crate::payload::{self, Order};
use crate::run::{self, Pairs, Result, Run};
use crate::yardstick::{Setting, Yardstick};

/// Messages of a batch.
pub const BATCH: u64 = 250;
/// Callers that produce batches.
pub const CALLERS: usize = 4;

/// Batches of 250 by four callers, against one bare insert a batch by four callers.
pub async fn batches<Db: Yardstick>(place: &Db::Place, options: &Options) -> Result<Pairs> {
    let ours = async || -> Result<Run> {
        let setting = Db::open(place).await?;
        let producer = Arc::new(setting.client.producer::<Order>().await?);
        measured(setting, options, CALLERS, move || produce_batch(Arc::clone(&producer))).await
    };
    run::pairs("batches", options.pairs, async || bare::<Db>(place, options).await, ours).await
}

/// Single messages by as many callers, against the bare insert of batches.
pub async fn singles<Db: Yardstick>(place: &Db::Place, options: &Options, callers: usize) -> Result<Pairs> {
    let ours = async || -> Result<Run> {
        let setting = Db::open(place).await?;
        let producer = Arc::new(setting.client.producer::<Order>().await?);
        let call = move || {
            let producer = Arc::clone(&producer);
            async move {
                producer.produce(&payload::next()).await?;
                Ok(1)
            }
        };
        measured(setting, options, callers, call).await
    };
    let name = format!("singles by {callers}");
    run::pairs(&name, options.pairs, async || bare::<Db>(place, options).await, ours).await
}

async fn bare<Db: Yardstick>(place: &Db::Place, options: &Options) -> Result<Run> {
    let setting = Db::open(place).await?;
    let pool = setting.writer.clone();
    let call = move || {
        let pool = pool.clone();
        async move {
            Db::insert(&pool, payload::encoded_batch(BATCH)?).await?;
            Ok(BATCH)
        }
    };
    measured(setting, options, CALLERS, call).await
}

async fn measured<Db, C, F>(setting: Setting<Db>, options: &Options, callers: usize, call: C) -> Result<Run>
where
    Db: Yardstick,
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = Result<u64>> + Send,
{
    // Connections are opened and statements prepared.
    run::repeat(callers, 3, call.clone()).await?;
    let start = setting.wal().await?;
    let (messages, took) = run::callers(callers, options.seconds, call).await?;
    let wal = setting.wal_each(start, messages).await?;
    setting.close().await;
    Ok(Run { messages, took, wal })
}

/// Produces one batch; answers its length.
pub async fn produce_batch<Db: Yardstick>(producer: Arc<Producer<Order, Db>>) -> Result<u64> {
    producer.produce_batch(&payload::batch(BATCH)).await?;
    Ok(BATCH)
}
