use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{Group, RouteSegment, Stream};

#[derive(Serialize, Deserialize, JsonSchema, RouteSegment)]
#[serde(rename_all = "lowercase")]
enum Region {
    Eu,
    Us,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders.placed", route = "orders.{region}.{kind}")]
struct OrderPlaced {
    region: Region,
    kind: String,
}

#[derive(Group)]
#[group(name = "wider", stream = OrderPlaced, bind = ["orders.eu.*", "orders.**"])]
struct Wider;

#[derive(Group)]
#[group(name = "same-keys", stream = OrderPlaced, bind = ["orders.*.*", "**"])]
struct SameKeys;

fn main() {}
