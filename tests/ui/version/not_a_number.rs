use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", version = "2")]
struct Quoted {
    id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", version = 1.2)]
struct Fraction {
    id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", version = 99999999999)]
struct Large {
    id: u64,
}

fn main() {}
