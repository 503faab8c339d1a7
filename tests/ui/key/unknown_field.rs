use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", key = "oder_id")]
struct OrderPlaced {
    order_id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", key = order_id)]
struct WithoutQuotes {
    order_id: u64,
}

fn main() {}
