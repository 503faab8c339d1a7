use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

type Maybe = Option<u64>;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", idempotency_key = "request_id")]
struct OrderPlaced {
    request_id: Maybe,
}

fn main() {}
