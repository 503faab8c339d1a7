use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{RouteSegment, Stream, bind};

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

fn main() {
    let _: &str = bind!(OrderPlaced, "orders.xx.*");
    let _: &str = bind!(OrderPlaced, "orders.e*.created");
    let _: &str = bind!();
}
