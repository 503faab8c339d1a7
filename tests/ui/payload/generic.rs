use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlaced<T> {
    order: T,
}

#[derive(Stream)]
#[stream(name = "orders")]
struct Borrowed<'a> {
    order: &'a str,
}

fn main() {}
