//! Runs, pairs of runs, and callers side by side.

use std::future::Future;
use std::time::{Duration, Instant};

use sqlstreams::BoxError;
use tokio::task::JoinSet;

pub type Result<T> = std::result::Result<T, BoxError>;

/// One measured run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub messages: u64,
    pub took: Duration,
    /// WAL bytes a message, where the database has such a figure.
    pub wal: Option<f64>,
}

impl Run {
    /// Messages a second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.took.as_secs_f64()
    }
}

/// Runs of the bare statements and of the library, taken in turns.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    pub bare: Vec<Run>,
    pub ours: Vec<Run>,
}

impl Pairs {
    /// The library's rate over the bare statements' in each pair.
    pub fn ratios(&self) -> Vec<f64> {
        self.ours.iter().zip(&self.bare).map(|(ours, bare)| ours.rate() / bare.rate()).collect()
    }
}

/// Runs both sides `count` times. The side that begins changes from pair to pair, so that a drift of the
/// machine favours neither.
pub async fn pairs(
    name: &str,
    count: usize,
    bare: impl AsyncFn() -> Result<Run>,
    ours: impl AsyncFn() -> Result<Run>,
) -> Result<Pairs> {
    let mut pairs = Pairs::default();
    for number in 0..count {
        if number % 2 == 0 {
            pairs.bare.push(bare().await?);
            pairs.ours.push(ours().await?);
        } else {
            pairs.ours.push(ours().await?);
            pairs.bare.push(bare().await?);
        }
        let (bare, ours) = (pairs.bare[number], pairs.ours[number]);
        say(format_args!("{name}: bare {:.0}/s, ours {:.0}/s", bare.rate(), ours.rate()));
    }
    Ok(pairs)
}

/// Tells whoever waits for the tables how far it is.
pub fn say(what: impl std::fmt::Display) {
    eprintln!("  {what}");
}

/// Lets `callers` callers repeat `call`, which answers its number of messages, until `length` is over. Returns
/// the messages and the time until the last call has returned.
pub async fn callers<C, F>(callers: usize, length: Duration, call: C) -> Result<(u64, Duration)>
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = Result<u64>> + Send,
{
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let call = call.clone();
        tasks.spawn(async move {
            let mut messages = 0;
            while start.elapsed() < length {
                messages += call().await?;
            }
            Ok::<_, BoxError>(messages)
        });
    }
    let messages = sum(&mut tasks).await?;
    Ok((messages, start.elapsed()))
}

/// Lets `callers` callers repeat `call` `times` times each.
pub async fn repeat<C, F>(callers: usize, times: u64, call: C) -> Result<u64>
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = Result<u64>> + Send,
{
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let call = call.clone();
        tasks.spawn(async move {
            let mut messages = 0;
            for _ in 0..times {
                messages += call().await?;
            }
            Ok::<_, BoxError>(messages)
        });
    }
    sum(&mut tasks).await
}

async fn sum(tasks: &mut JoinSet<Result<u64>>) -> Result<u64> {
    let mut messages = 0;
    while let Some(ended) = tasks.join_next().await {
        messages += ended??;
    }
    Ok(messages)
}

/// The middle one; of an even number, the mean of both.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}
