use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", route = "orders..v-{region}.*.{region}.{region}")]
struct OrderPlaced {
    region: String,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", route = "")]
struct Empty {
    region: String,
}

fn main() {}
