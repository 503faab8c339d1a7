use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Group;

#[derive(Serialize, Deserialize, JsonSchema)]
struct OrderPlaced {
    id: u64,
}

#[derive(Group)]
#[group(name = "email-receipts", stream = OrderPlaced, keys = "ordered")]
struct EmailReceipts;

fn main() {}
