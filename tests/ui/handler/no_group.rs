use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{BoxError, Delivery, Handler, Outcome, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlaced {
    id: u64,
}

struct EmailReceipts;

impl Handler for EmailReceipts {
    async fn handle(&self, _order: OrderPlaced, _delivery: Delivery) -> Result<Outcome, BoxError> {
        Ok(Outcome::Done)
    }
}

fn main() {}
