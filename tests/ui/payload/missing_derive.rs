use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, Stream)]
#[stream(name = "orders")]
struct OrderPlaced {
    id: u64,
}

fn main() {}
