use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{Group, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlaced {
    id: u64,
}

#[derive(Group)]
#[group(name = "email-receipts", stream = OrderPlaced, bind = "orders.eu.*")]
struct EmailReceipts;

fn main() {}
