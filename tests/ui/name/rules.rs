use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "Orders Placed")]
struct UpperCase {
    id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders..placed")]
struct EmptySegment {
    id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "__orders")]
struct Reserved {
    id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "")]
struct Empty {
    id: u64,
}

fn main() {}
