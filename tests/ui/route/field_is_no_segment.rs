use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema)]
enum Region {
    Eu,
    Us,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", route = "orders.{region}.{total}")]
struct OrderPlaced {
    region: Region,
    total: f64,
}

fn main() {}
