//! From the call of `produce` to the start of the handler, at a rate that leaves the consumer idle.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlstreams::{BoxError, Client, Consumer, Group, Outcome};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::options::Options;
use crate::payload::{
    self, Invoice, Invoices, Order, Orders, Payload, Refund, Refunds, Shipment, Shipments, Visit, Visits,
};
use crate::run::{self, Result, say};
use crate::yardstick::{Horizon, Setting, Yardstick};

pub mod child;

/// Between two messages: 200 a second.
const EVERY: Duration = Duration::from_millis(5);
/// Between two messages of each other stream: 50 a second.
const OTHERS_EVERY: Duration = Duration::from_millis(20);
/// Messages of this time are not counted.
const WARM_UP: Duration = Duration::from_secs(1);
/// How long the last messages may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Percentiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Percentiles {
    /// The median of each over several rounds.
    pub fn medians(rounds: &[Self]) -> Self {
        let of = |value: fn(&Self) -> f64| run::median(rounds.iter().map(value));
        Self { p50: of(|round| round.p50), p95: of(|round| round.p95), p99: of(|round| round.p99) }
    }
}

impl std::fmt::Display for Percentiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} / {:.2} / {:.2}", self.p50, self.p95, self.p99)
    }
}

/// Each round of each figure.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// A bare insert, a wake-up inside the process and a bare read.
    pub bare: Vec<Percentiles>,
    pub alone: Vec<Percentiles>,
    pub among_others: Vec<Percentiles>,
    pub other_process: Vec<Percentiles>,
}

/// What the consumer has beside the stream that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    None,
    /// Four streams with a producer and a group each.
    Streams,
    /// A process of its own.
    Process,
}

/// All of them, in turns.
pub async fn latency<Db: Yardstick>(place: &Db::Place, options: &Options) -> Result<Latencies> {
    let length = options.latency;
    let mut all = Latencies::default();
    for _ in 0..options.pairs {
        let bare = bare::<Db>(place, length).await?;
        let alone = ours::<Db>(place, length, Company::None).await?;
        let among_others = ours::<Db>(place, length, Company::Streams).await?;
        let other_process = ours::<Db>(place, length, Company::Process).await?;
        say(format_args!(
            "latency: bare {bare}, alone {alone}, with four {among_others}, other process {other_process}"
        ));
        all.bare.push(bare);
        all.alone.push(alone);
        all.among_others.push(among_others);
        all.other_process.push(other_process);
    }
    Ok(all)
}

/// When messages were made and how long they took, in microseconds.
#[derive(Clone, Default)]
pub struct Samples(Arc<Mutex<Vec<(u64, u64)>>>);

impl Samples {
    fn record(&self, order: &Order) {
        self.push(order.ts(), payload::now().saturating_sub(order.ts()));
    }

    fn push(&self, made: u64, took: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((made, took));
    }

    fn all(&self) -> Vec<(u64, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn since(&self, from: u64) -> Vec<u64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|(made, _)| *made >= from).map(|(_, took)| *took).collect()
    }

    fn percentiles(&self, sent: Sent) -> Result<Percentiles> {
        let mut took = self.since(sent.from);
        if took.len() != sent.messages || took.is_empty() {
            return Err(format!("{} of {} messages arrived", took.len(), sent.messages).into());
        }
        took.sort_unstable();
        let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)] as f64 / 1_000.0;
        Ok(Percentiles { p50: at(50), p95: at(95), p99: at(99) })
    }
}

/// The messages that count.
#[derive(Clone, Copy, Debug)]
struct Sent {
    from: u64,
    messages: usize,
}

/// Calls `produce` at the rate, whether the calls before have returned or not.
async fn send<C, F>(length: Duration, produce: C) -> Result<Sent>
where
    C: Fn() -> F,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut ticks = tokio::time::interval(EVERY);
    let mut from = 0;
    let mut messages = 0;
    for (counted, time) in [(false, WARM_UP), (true, length)] {
        let mut calls = JoinSet::new();
        from = payload::now();
        for _ in 0..time.as_micros() / EVERY.as_micros() {
            ticks.tick().await;
            calls.spawn(produce());
            messages += usize::from(counted);
        }
        while let Some(ended) = calls.join_next().await {
            ended??;
        }
    }
    Ok(Sent { from, messages })
}

async fn bare<Db: Yardstick>(place: &Db::Place, length: Duration) -> Result<Percentiles> {
    let setting = Db::open(place).await?;
    let (samples, horizon, news) = (Samples::default(), Arc::new(Horizon::default()), Arc::new(Notify::new()));
    let mut reading = JoinSet::new();
    {
        let (pool, samples) = (setting.reader.clone(), samples.clone());
        let (horizon, news) = (Arc::clone(&horizon), Arc::clone(&news));
        reading.spawn(async move {
            let mut last = 0;
            loop {
                news.notified().await;
                let high = horizon.safe();
                match Db::read(&pool, last, high, |order| samples.record(&order)).await {
                    Ok(read) => last = read.last,
                    Err(err) => return err,
                }
            }
        });
    }
    let pool = setting.writer.clone();
    let produce = || {
        let (pool, horizon, news) = (pool.clone(), Arc::clone(&horizon), Arc::clone(&news));
        let encoded = payload::encoded_batch(1);
        async move {
            let ticket = horizon.begin();
            let last = Db::insert(&pool, encoded?).await?;
            horizon.end(ticket, last);
            news.notify_one();
            Ok(())
        }
    };
    let sent = send(length, produce).await?;
    arrived(&samples, sent).await;
    if let Some(failure) = reading.try_join_next() {
        return Err(failure?);
    }
    reading.shutdown().await;
    setting.close().await;
    samples.percentiles(sent)
}

/// Waits until all messages are there, at most as long as the patience.
async fn arrived(samples: &Samples, sent: Sent) {
    let start = Instant::now();
    while samples.since(sent.from).len() < sent.messages && start.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn ours<Db: Yardstick>(place: &Db::Place, length: Duration, company: Company) -> Result<Percentiles> {
    let setting = Db::open(place).await?;
    let producer = Arc::new(setting.client.producer::<Order>().await?);
    let produce = || {
        let producer = Arc::clone(&producer);
        let order = payload::next();
        async move {
            producer.produce(&order).await?;
            Ok(())
        }
    };
    let (samples, sent) = if company == Company::Process {
        let child = child::Child::start::<Db>(&setting.url)?;
        let sent = send(length, produce).await?;
        (child.finish().await?, sent)
    } else {
        let samples = Samples::default();
        let mut consumer = measuring(&setting.client, &samples);
        let mut others = JoinSet::new();
        if company == Company::Streams {
            consumer = with_others(consumer);
            start_others(&setting, &mut others).await?;
        }
        let mut sent = None;
        let shutdown = async {
            let all = send(length, produce).await;
            if let Ok(all) = &all {
                arrived(&samples, *all).await;
            }
            sent = Some(all);
        };
        consumer.run_until(shutdown).await?;
        if let Some(failure) = others.try_join_next() {
            return Err(failure?);
        }
        others.shutdown().await;
        (samples, sent.ok_or("the consumer ended before the producers did")??)
    };
    setting.close().await;
    samples.percentiles(sent)
}

/// A consumer whose handler takes the time when it starts.
pub fn measuring<Db: Yardstick>(client: &Client<Db>, samples: &Samples) -> Consumer {
    let samples = samples.clone();
    client.consumer().group_fn::<Orders, _, _>(move |order, _delivery| {
        samples.record(&order);
        std::future::ready(Ok(Outcome::Done))
    })
}

fn with_others(consumer: Consumer) -> Consumer {
    fn quiet<G: Group>(consumer: Consumer) -> Consumer {
        consumer.group_fn::<G, _, _>(|_message, _delivery| std::future::ready(Ok(Outcome::Done)))
    }
    quiet::<Visits>(quiet::<Refunds>(quiet::<Shipments>(quiet::<Invoices>(consumer))))
}

async fn start_others<Db: Yardstick>(setting: &Setting<Db>, tasks: &mut JoinSet<BoxError>) -> Result<()> {
    async fn start<P: Payload, Db: Yardstick>(setting: &Setting<Db>, tasks: &mut JoinSet<BoxError>) -> Result<()> {
        let producer = setting.client.producer::<P>().await?;
        tasks.spawn(async move {
            let mut ticks = tokio::time::interval(OTHERS_EVERY);
            loop {
                ticks.tick().await;
                if let Err(err) = producer.produce(&payload::next()).await {
                    return err.into();
                }
            }
        });
        Ok(())
    }
    start::<Invoice, Db>(setting, tasks).await?;
    start::<Shipment, Db>(setting, tasks).await?;
    start::<Refund, Db>(setting, tasks).await?;
    start::<Visit, Db>(setting, tasks).await
}
