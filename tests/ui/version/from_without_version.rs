use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlacedV1 {
    id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", from = OrderPlacedV1)]
struct OrderPlaced {
    id: u64,
}

fn main() {}
