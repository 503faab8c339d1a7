//! The changes of each account are applied in order, by two consumers; one account's trouble holds up no other. Runs on a
//! temporary SQLite file; with `DATABASE_URL=postgres://…` on Postgres.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{BoxError, Client, Database, Delivery, Group, Handler, Outcome, Postgres, Sqlite, Stream};

#[derive(Debug, Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "ordered.changes", version = 1, key = "account")]
struct Change {
    account: String,
    step: u32,
}

/// Keeps a ledger. Of one account, one change runs at a time, and the next one when it is done.
#[derive(Group)]
#[group(name = "ledger", stream = Change, keys = "ordered", retries = 5, retry_delay = "30ms")]
struct Ledger {
    consumer: u32,
    applied: Arc<Mutex<BTreeMap<String, Vec<u32>>>>,
}

impl Handler for Ledger {
    async fn handle(&self, change: Change, delivery: Delivery) -> Result<Outcome, BoxError> {
        if change.account == "bea" && change.step == 4 && delivery.attempt() < 3 {
            println!("consumer {}: bea's change 4 fails at attempt {}", self.consumer, delivery.attempt() + 1);
            return Err("the bank does not answer".into());
        }
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = applied.entry(change.account).or_default();
        assert_eq!(changes.len(), change.step as usize, "a change came out of order");
        changes.push(change.step);
        Ok(Outcome::Done)
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    match std::env::var("DATABASE_URL") {
        Ok(url) => run(Client::<Postgres>::connect(&url).await?).await,
        Err(_) => {
            let folder = tempfile::tempdir()?;
            let url = format!("sqlite://{}?mode=rwc", folder.path().join("ordered.db").display());
            run(Client::<Sqlite>::connect(&url).await?).await
        }
    }
}

async fn run<Db: Database>(client: Client<Db>) -> Result<(), BoxError> {
    client.migrate().await?;
    let changes = client.producer::<Change>().await?;
    let accounts = ["ada", "bea", "cem", "dag"];
    for step in 0..25 {
        let batch = accounts.map(|account| Change { account: account.to_owned(), step });
        changes.produce_batch(&batch).await?;
    }

    let applied = Arc::new(Mutex::new(BTreeMap::new()));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut consuming = tokio::task::JoinSet::new();
    for consumer in 1..=2 {
        let group = Ledger { consumer, applied: Arc::clone(&applied) };
        let mut stopped = stopped.clone();
        consuming.spawn(client.consumer().group(group).run_until(async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        }));
    }
    loop {
        let position = client.position::<Ledger>().await?;
        if position.settled == position.head {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.send_replace(true);
    while let Some(ended) = consuming.join_next().await {
        let summary = &ended??[0];
        println!("{} changes handled, {} failures retried", summary.done, summary.retried);
    }

    let applied = applied.lock().unwrap_or_else(PoisonError::into_inner);
    for (account, steps) in applied.iter() {
        println!("{account}: {} changes, in order", steps.len());
        assert_eq!(*steps, (0..25).collect::<Vec<_>>());
    }
    assert_eq!(applied.len(), accounts.len());
    Ok(())
}
