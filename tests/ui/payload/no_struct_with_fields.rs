use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
enum OrderEvent {
    Placed,
    Shipped,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlaced(u64);

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct Tick;

fn main() {}
