use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema)]
struct OrderId {
    shop: u32,
    number: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", key = "order_id")]
struct OrderPlaced {
    order_id: OrderId,
}

fn main() {}
