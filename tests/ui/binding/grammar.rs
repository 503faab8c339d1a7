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
#[group(name = "stars", stream = OrderPlaced, bind = ["orders.e*.x", "orders..x", "orders.***", ""])]
struct Stars;

#[derive(Group)]
#[group(name = "nothing", stream = OrderPlaced, bind = [])]
struct Nothing;

#[derive(Group)]
#[group(name = "no-text", stream = OrderPlaced, bind = ("orders.eu.*", "orders.us.*"))]
struct NoText;

fn main() {}
