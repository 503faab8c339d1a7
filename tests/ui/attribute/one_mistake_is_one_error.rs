use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{BoxError, Delivery, Group, Handler, Outcome, RouteSegment, Stream, bind, route};

#[derive(Serialize, Deserialize, JsonSchema, RouteSegment)]
enum Region {
    Eu,
    #[route_segment("u.s")]
    Us,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders.placed", rout = "orders.{region}", key = "region")]
struct OrderPlaced {
    region: Region,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders.placed", version = 3, from = OrderPlaced)]
struct OrderPlacedV3 {
    region: String,
}

#[derive(Group)]
#[group(name = "email-receipts", stream = OrderPlaced, bind = "orders.eu", keys = "ordered")]
struct EmailReceipts;

#[derive(Group)]
#[group(name = "mistaken", stream = OrderPlaced, retires = 5)]
struct Mistaken;

impl Handler for Mistaken {
    async fn handle(&self, _order: OrderPlaced, _delivery: Delivery) -> Result<Outcome, BoxError> {
        Ok(Outcome::Done)
    }
}

fn main() {
    let _: &str = route!(OrderPlaced, "orders.eu");
    let _: &str = bind!(OrderPlaced, "orders.*");
}
