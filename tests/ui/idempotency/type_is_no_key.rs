use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema)]
struct RequestId {
    shop: u32,
    number: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", idempotency_key = "request_id")]
struct OrderPlaced {
    request_id: RequestId,
}

fn main() {}
