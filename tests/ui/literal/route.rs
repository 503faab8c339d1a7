use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{RouteSegment, Stream, route};

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
    let _: &str = route!(OrderPlaced, "orders.xx.created");
    let _: &str = route!(OrderPlaced, "orders.eu");
    let _: &str = route!(OrderPlaced, "orders.eu.*");
    let _: &str = route!("orders.eu.created");
    let _: &str = route!(OrderPlaced, Region::Eu);
}
