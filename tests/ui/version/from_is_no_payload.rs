use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

struct OrderPlacedV1;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", version = 2, from = OrderPlacedV1)]
struct OrderPlaced {
    id: u64,
}

fn main() {}
