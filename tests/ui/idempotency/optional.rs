use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", idempotency_key = "request_id")]
struct OrderPlaced {
    request_id: Option<u64>,
}

fn main() {}
