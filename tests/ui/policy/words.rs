use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{Group, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", key = "id")]
struct OrderPlaced {
    id: u64,
}

#[derive(Group)]
#[group(name = "keys", stream = OrderPlaced, keys = "orderd")]
struct Keys;

#[derive(Group)]
#[group(name = "start", stream = OrderPlaced, start = "newest")]
struct Start;

#[derive(Group)]
#[group(name = "log", stream = OrderPlaced, delivery_log = "failure")]
struct Log;

#[derive(Group)]
#[group(name = "no-log", stream = OrderPlaced, delivery_log = "none")]
struct NoLog;

fn main() {}
