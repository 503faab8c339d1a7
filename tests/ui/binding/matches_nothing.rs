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
#[group(name = "wrong-value", stream = OrderPlaced, bind = "orders.xx.*")]
struct WrongValue;

#[derive(Group)]
#[group(name = "wrong-text", stream = OrderPlaced, bind = ["orders.eu.*", "order.**"])]
struct WrongText;

#[derive(Group)]
#[group(name = "wrong-count", stream = OrderPlaced, bind = "orders.*")]
struct WrongCount;

fn main() {}
