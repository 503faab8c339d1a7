use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{BoxError, Client, Group, Sqlite, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlaced {
    id: u64,
}

#[derive(Group)]
#[group(name = "email-receipts", stream = OrderPlaced)]
struct EmailReceipts;

async fn run(client: Client<Sqlite>) -> Result<(), BoxError> {
    client.consumer().group(EmailReceipts).run_until(std::future::pending()).await?;
    Ok(())
}

fn main() {}
