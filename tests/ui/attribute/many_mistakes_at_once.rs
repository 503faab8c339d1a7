use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "Orders", version = 0, from = "v1::OrderPlaced")]
#[stream(route = "orders.{regoin}.{kind}", key = oder_id)]
struct OrderPlaced {
    order_id: u64,
    region: String,
    kind: Option<String>,
}

fn main() {}
