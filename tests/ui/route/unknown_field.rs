use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", route = "orders.{regoin}.{country}")]
struct OrderPlaced {
    region: String,
    kind: String,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "ticks", route = "ticks.{region}")]
struct Tick {}

fn main() {}
