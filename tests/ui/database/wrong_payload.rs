use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{BoxError, Producer, Sqlite, Stream};

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

async fn produce(orders: Producer<OrderPlaced, Sqlite>, invoice: InvoiceSent) -> Result<(), BoxError> {
    orders.produce(&invoice).await?;
    Ok(())
}

fn main() {}
