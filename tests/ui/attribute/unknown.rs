use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{Group, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(naem = "orders", rotue = "orders.{id}")]
struct OrderPlaced {
    id: u64,
}

#[derive(Group)]
#[group(name = "email-receipts", stream = OrderPlaced, concurrency = 5)]
struct EmailReceipts;

fn main() {}
