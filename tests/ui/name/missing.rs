use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{Group, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
struct NoAttribute {
    id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(version = 2)]
struct OrderPlaced {
    id: u64,
}

#[derive(Group)]
#[group(stream = OrderPlaced)]
struct EmailReceipts;

fn main() {}
