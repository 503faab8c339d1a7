use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

type Maybe = Option<u64>;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", key = "order_id")]
struct OrderPlaced {
    order_id: Maybe,
}

fn main() {}
