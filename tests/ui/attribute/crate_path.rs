use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{Group, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", crate = "not a path")]
struct OrderPlaced {
    id: u64,
}

#[derive(Group)]
#[group(name = "email-receipts", stream = OrderPlaced, crate = sqlstreams)]
struct EmailReceipts;

fn main() {}
