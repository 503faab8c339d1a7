use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", route = "orders.{region}.{kind}")]
struct OrderPlaced {
    region: Option<String>,
    #[serde(skip)]
    kind: String,
}

fn main() {}
