//! Idempotency keys that expired.

use sqlx::Row;

use super::{PostgresBackend, value};
use crate::backend::{SweepParams, SweepRow};
use crate::error::Error;
use crate::time::Timestamp;

pub(super) async fn sweep(backend: &PostgresBackend, params: &SweepParams) -> Result<SweepRow, Error> {
    const DOING: &str = "removing expired idempotency keys";
    let state = backend.stream(params.stream);
    let mut connection = backend.engine(DOING).await?;
    let row = backend
        .query(&state.statements.idempotency_sweep)
        .bind(value::now(params.since))
        .bind(params.limit)
        .bind(value::now(params.now))
        .fetch_one(&mut *connection)
        .await
        .and_then(|row| {
            Ok(SweepRow { swept: row.try_get(0)?, reached: row.try_get::<Option<i64>, _>(1)?.map(Timestamp) })
        });
    connection.answer(DOING, row).await
}
