use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "invoices")]
struct InvoiceSent {
    id: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders", version = 2, from = InvoiceSent)]
struct OrderPlaced {
    id: u64,
}

fn main() {}
