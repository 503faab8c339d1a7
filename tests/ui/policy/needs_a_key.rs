use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{Group, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlaced {
    id: u64,
}

#[derive(Group)]
#[group(name = "ordered", stream = OrderPlaced, keys = "ordered")]
struct Ordered;

#[derive(Group)]
#[group(name = "exclusive", stream = OrderPlaced, keys = "exclusive")]
struct Exclusive;

fn main() {}
