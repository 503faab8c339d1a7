use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{BoxError, Delivery, Group, Handler, Outcome, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlaced {
    id: u64,
}

#[derive(Group)]
#[group(name = "email-receipts", stream = OrderPlaced)]
struct EmailReceipts;

impl Handler for EmailReceipts {
    async fn handle(&self, order: OrderPlaced, _delivery: Delivery) -> Result<Outcome, BoxError> {
        let shared = std::rc::Rc::new(order.id);
        tokio::task::yield_now().await;
        drop(shared);
        Ok(Outcome::Done)
    }
}

fn main() {}
