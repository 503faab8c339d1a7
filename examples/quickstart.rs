//! Orders come in from a file, two groups handle them. Runs on a temporary SQLite file; with
//! `DATABASE_URL=postgres://…` on Postgres.

use std::io::{BufRead, BufReader};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{
    BoxError, Client, Database, DeadLetterFilter, Delivery, Group, Handler, MessageId, Outcome, Postgres, RouteSegment,
    Sqlite, Stream,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

#[derive(Serialize, Deserialize, JsonSchema, RouteSegment)]
#[serde(rename_all = "lowercase")]
enum Region {
    Eu,
    Us,
}

#[derive(Serialize, Deserialize, JsonSchema, RouteSegment)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Retail,
    Wholesale,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Customer {
    name: String,
    email: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Line {
    sku: String,
    title: String,
    quantity: u32,
    unit_price: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Money {
    amount: String,
    currency: String,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "quickstart.orders", version = 1, route = "orders.{region}.{kind}")]
struct OrderPlaced {
    order_id: String,
    region: Region,
    kind: Kind,
    customer: Customer,
    lines: Vec<Line>,
    total: Money,
    note: Option<String>,
    coupon: Option<String>,
}

/// Sends receipts to European customers. The mail server is out of order at first.
#[derive(Group)]
#[group(name = "email-receipts", stream = OrderPlaced, bind = "orders.eu.*", retries = 3, retry_delay = "50ms")]
struct EmailReceipts {
    story: UnboundedSender<String>,
}

impl Handler for EmailReceipts {
    async fn handle(&self, order: OrderPlaced, delivery: Delivery) -> Result<Outcome, BoxError> {
        let attempt = delivery.attempt() + 1;
        if order.customer.email.is_empty() {
            self.story.send(format!("email-receipts  {}  no address: a dead letter", order.order_id))?;
            return Ok(Outcome::Dead("the customer has no email address".to_owned()));
        }
        if order.order_id == "A-1004" && attempt < 3 {
            self.story
                .send(format!("email-receipts  {}  attempt {attempt} failed: will be retried", order.order_id))?;
            return Err("the mail server does not answer".into());
        }
        let receipt = format!("{} {}", order.total.amount, order.total.currency);
        self.story.send(format!(
            "email-receipts  {}  receipt over {receipt} to {} (attempt {attempt})",
            order.order_id, order.customer.name
        ))?;
        Ok(Outcome::Done)
    }
}

/// Counts what leaves the warehouse, whatever the region.
#[derive(Group)]
#[group(name = "stock-ledger", stream = OrderPlaced)]
struct StockLedger {
    story: UnboundedSender<String>,
}

impl Handler for StockLedger {
    async fn handle(&self, order: OrderPlaced, _delivery: Delivery) -> Result<Outcome, BoxError> {
        let units: u32 = order.lines.iter().map(|line| line.quantity).sum();
        self.story.send(format!("stock-ledger    {}  {units} units", order.order_id))?;
        Ok(Outcome::Done)
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    match std::env::var("DATABASE_URL") {
        Ok(url) => run(Client::<Postgres>::connect(&url).await?).await,
        Err(_) => {
            let folder = tempfile::tempdir()?;
            let url = format!("sqlite://{}?mode=rwc", folder.path().join("quickstart.db").display());
            run(Client::<Sqlite>::connect(&url).await?).await
        }
    }
}

async fn run<Db: Database>(client: Client<Db>) -> Result<(), BoxError> {
    client.migrate().await?;
    let orders = client.producer::<OrderPlaced>().await?;

    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/orders.ndjson");
    let mut produced = Vec::new();
    for line in BufReader::new(std::fs::File::open(file)?).lines() {
        let order: OrderPlaced = serde_json::from_str(&line?)?;
        produced.push((orders.produce(&order).await?, order));
    }
    println!("{} orders produced, ids {} to {}", produced.len(), produced[0].0, produced[produced.len() - 1].0);

    let european = produced.iter().filter(|(_, order)| matches!(order.region, Region::Eu)).count();
    let (story, told) = unbounded_channel();
    // Each order is one line a group; order A-1004 fails twice before that.
    let everything_told = print_lines(told, produced.len() + european + 2);
    let summary = client
        .consumer()
        .group(EmailReceipts { story: story.clone() })
        .group(StockLedger { story })
        .run_until(everything_told)
        .await?;

    println!();
    for group in summary {
        let (done, retried, dead) = (group.done, group.retried, group.dead);
        println!("{:15} {done} handled, {retried} failures retried, {dead} dead", group.group);
    }
    let letters = client.dead_letters::<EmailReceipts>().await?;
    for letter in letters.list(&DeadLetterFilter::all(), MessageId(0), 10).await? {
        println!("dead letter     message {}: {}", letter.id, letter.error);
    }
    Ok(())
}

async fn print_lines(mut told: UnboundedReceiver<String>, lines: usize) {
    for _ in 0..lines {
        if let Some(line) = told.recv().await {
            println!("{line}");
        }
    }
}
