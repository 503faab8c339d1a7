use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{Group, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlaced {
    id: u64,
}

#[derive(Group)]
#[group(name = "units", stream = OrderPlaced, timeout = "30", retry_delay = 5, retries = -1)]
struct Units;

#[derive(Group)]
#[group(name = "zero", stream = OrderPlaced, timeout = "0s")]
struct Zero;

#[derive(Group)]
#[group(name = "order", stream = OrderPlaced, retry_delay = "1m", retry_max_delay = "30s")]
struct Order;

fn main() {}
