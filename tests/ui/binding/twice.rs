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
#[group(name = "twice", stream = OrderPlaced, bind = ["orders.eu.*", "orders.us.*", "orders.eu.*"])]
struct Twice;

fn main() {}
