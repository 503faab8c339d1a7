use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{BoxError, Delivery, Group, Handler, Outcome, Stream};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlaced {
    id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "invoices")]
struct InvoiceSent {
    id: u64,
}

#[derive(Group)]
#[group(name = "email-receipts", stream = OrderPlaced)]
struct EmailReceipts;

impl Handler for EmailReceipts {
    async fn handle(&self, _invoice: InvoiceSent, _delivery: Delivery) -> Result<Outcome, BoxError> {
        Ok(Outcome::Done)
    }
}

fn main() {}
