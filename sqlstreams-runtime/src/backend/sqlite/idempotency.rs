//! Idempotency keys that expired.

use sqlx::Row;

use super::connection::Durability::Relaxed;
use super::{SqliteBackend, error, value};
use crate::backend::{SweepParams, SweepRow};
use crate::error::Error;
use crate::time::Timestamp;

pub(super) async fn sweep(backend: &SqliteBackend, params: &SweepParams) -> Result<SweepRow, Error> {
    const DOING: &str = "removing expired idempotency keys";
    let state = backend.stream(params.stream);
    let now = value::clock(params.now);
    let look = sqlx::query(state.statements.idempotency_sweep_look.clone()).bind(now.0);
    if params.limit <= 0 || !backend.finds(DOING, look).await? {
        return Ok(SweepRow::default());
    }
    let sweep = sqlx::query(state.statements.idempotency_sweep.clone()).bind(params.limit).bind(now.0);
    let rows = backend.connections.write(Relaxed, DOING, sweep).await?.rows;
    let mut swept = SweepRow { swept: i64::try_from(rows.len()).unwrap_or(i64::MAX), reached: None };
    for row in &rows {
        let expired = row.try_get(0).map(Timestamp).map_err(|err| error::map(DOING, err))?;
        swept.reached = swept.reached.max(Some(expired));
    }
    Ok(swept)
}
