use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", version = 1)]
#[stream(name = "orders.placed")]
struct OrderPlaced {
    id: u64,
}

fn main() {}
