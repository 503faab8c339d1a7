//! Orders fail and become dead letters; the cause is mended, they are redriven, and all of them are handled. Runs on a
//! temporary SQLite file; with `DATABASE_URL=postgres://…` on Postgres.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{
    AttemptStatus, BoxError, Client, Database, DeadLetterFilter, Delivery, DiscardScope, Group, Handler, MessageId,
    Outcome, Postgres, Sqlite, Stream,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

#[derive(Debug, Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "dead-letters.orders", version = 1)]
struct OrderPlaced {
    number: u32,
    address: Option<String>,
}

/// Hands orders to a carrier. A failure is tried again twice, and each attempt that fails leaves a row in the log.
#[derive(Group)]
#[group(name = "shipping", stream = OrderPlaced, retries = 2, retry_delay = "20ms", delivery_log = "failures")]
struct Shipping {
    carrier_answers: Arc<AtomicBool>,
    handled: UnboundedSender<u32>,
}

impl Handler for Shipping {
    async fn handle(&self, order: OrderPlaced, delivery: Delivery) -> Result<Outcome, BoxError> {
        if order.address.is_none() {
            // No retry makes this better.
            return Ok(Outcome::Dead("the order has no address".to_owned()));
        }
        if order.number.is_multiple_of(3) && !self.carrier_answers.load(Ordering::Acquire) {
            return Err("the carrier does not answer".into());
        }
        println!("order {:2} shipped at attempt {}", order.number, delivery.attempt() + 1);
        self.handled.send(order.number)?;
        Ok(Outcome::Done)
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    match std::env::var("DATABASE_URL") {
        Ok(url) => run(Client::<Postgres>::connect(&url).await?).await,
        Err(_) => {
            let folder = tempfile::tempdir()?;
            let url = format!("sqlite://{}?mode=rwc", folder.path().join("dead_letters.db").display());
            run(Client::<Sqlite>::connect(&url).await?).await
        }
    }
}

async fn run<Db: Database>(client: Client<Db>) -> Result<(), BoxError> {
    client.migrate().await?;
    let orders = client.producer::<OrderPlaced>().await?;
    // Every third order needs a carrier that is out of order, and order 10 has no address.
    let placed: Vec<OrderPlaced> = (1..=12)
        .map(|number| OrderPlaced { number, address: (number != 10).then(|| format!("{number} Main Street")) })
        .collect();
    let ids = orders.produce_batch(&placed).await?;

    let carrier_answers = Arc::new(AtomicBool::new(false));
    let (handled, mut numbers) = unbounded_channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let consumer = client.consumer().group(Shipping { carrier_answers: Arc::clone(&carrier_answers), handled });
    let consuming = tokio::spawn(consumer.run_until(async {
        let _ = stopped.await;
    }));

    let first = take(&mut numbers, 7).await?;
    assert_eq!(first, [1, 2, 4, 5, 7, 8, 11]);
    while client.position::<Shipping>().await?.dead < 5 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let letters = client.dead_letters::<Shipping>().await?;
    let by_error = letters.by_error(&DeadLetterFilter::all(), 10).await?;
    println!("\ndead letters, by error:");
    for group in &by_error {
        println!("{:3} x {} (messages {} to {})", group.messages, group.error, group.oldest, group.newest);
    }
    assert_eq!(by_error.iter().map(|group| group.messages).collect::<Vec<_>>(), [4, 1]);

    // What is known about one of them: its attempts, and its payload.
    let third = letters.inspect(ids[2]).await?.ok_or("order 3 is dead")?;
    let attempts = client.attempts::<Shipping>(ids[2], 10).await?;
    println!("\norder {} died after {} attempts:", third.decode()?.number, third.letter().attempts);
    for attempt in attempts.iter().rev() {
        println!("  attempt {}: {}", attempt.attempt, attempt.error.as_deref().unwrap_or("no error"));
    }
    assert_eq!(attempts.len(), 3);
    assert_eq!(attempts[0].status, AttemptStatus::Dead);

    // The carrier is back: its orders run again, within half a second.
    carrier_answers.store(true, Ordering::Release);
    let carrier = DeadLetterFilter::all().error_starts_with("the carrier");
    let plan = letters.redrive_dry_run(&carrier).await?;
    assert_eq!((plan.messages, plan.without_payload), (4, 0));
    let redriven = letters.redrive(&carrier, Duration::from_millis(500)).await?;
    println!("\n{} letters redriven", redriven.messages);
    assert_eq!(redriven.messages, 4);
    assert_eq!(take(&mut numbers, 4).await?, [3, 6, 9, 12]);

    // Nobody can ship order 10.
    let left = letters.list(&DeadLetterFilter::all(), MessageId(0), 10).await?;
    assert_eq!(left.iter().map(|letter| letter.id).collect::<Vec<_>>(), [ids[9]]);
    assert!(letters.discard_one(ids[9], DiscardScope::Dead).await?);

    let _ = stop.send(());
    let summary = consuming.await??;
    let (done, retried, dead) = (summary[0].done, summary[0].retried, summary[0].dead);
    println!("\n{done} handled, {retried} failures retried, {dead} dead on the way");
    assert_eq!((done, retried, dead), (11, 8, 5));
    let position = client.position::<Shipping>().await?;
    assert_eq!((position.settled, position.dead, position.ready), (position.head, 0, 0));
    Ok(())
}

/// The next numbers, in order.
async fn take(numbers: &mut UnboundedReceiver<u32>, count: usize) -> Result<Vec<u32>, BoxError> {
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count {
        taken.push(numbers.recv().await.ok_or("the consumer has stopped")?);
    }
    taken.sort_unstable();
    Ok(taken)
}
