use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", key = "order_id")]
struct OrderPlaced {
    order_id: Option<u64>,
}

fn main() {}
