use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{Group, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream]
struct Bare {
    id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream = "orders"]
struct Assigned {
    id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name("orders"), version, key =)]
struct OrderPlaced {
    id: u64,
}

#[derive(Group)]
#[group("email-receipts", stream: OrderPlaced)]
struct EmailReceipts;

fn main() {}
