use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{BoxError, Postgres, Producer, Sqlite, Stream, sqlx};

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlaced {
    id: u64,
}

async fn produce(
    orders: Producer<OrderPlaced, Postgres>,
    order: OrderPlaced,
    mut sqlite_tx: sqlx::Transaction<'_, Sqlite>,
) -> Result<(), BoxError> {
    orders.produce_in(&mut sqlite_tx, &order).await?;
    Ok(())
}

fn main() {}
