use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

mod v2 {
    use super::*;

    #[derive(Serialize, Deserialize, JsonSchema, Stream)]
    #[stream(name = "orders", version = 2)]
    pub struct OrderPlaced {
        id: u64,
    }
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", version = 2, from = v2::OrderPlaced)]
struct OrderPlaced {
    id: u64,
}

fn main() {}
