//! Claims of fresh messages.

use sqlx::Row;

use super::PostgresBackend;
use crate::backend::{ClaimParams, ClaimRow};
use crate::error::Error;

const DOING: &str = "claiming messages";

pub(super) async fn take(backend: &PostgresBackend, params: &ClaimParams) -> Result<ClaimRow, Error> {
    let state = backend.stream(params.stream);
    let settled: Vec<_> = params.settled.iter().map(|token| token.0).collect();
    let mut connection = backend.engine(DOING).await?;
    let row = backend
        .query(&state.statements.claim_take)
        .bind(params.group.0)
        .bind(params.width)
        .bind(params.token.0)
        .bind(params.presence.0)
        .bind(settled)
        .bind(if params.durable { "on" } else { "off" })
        .fetch_one(&mut *connection)
        .await
        .and_then(|row| {
            Ok(ClaimRow {
                low: row.try_get(0)?,
                high: row.try_get(1)?,
                head: row.try_get(2)?,
                proven: row.try_get(3)?,
                contended: row.try_get(4)?,
                pending: row.try_get(5)?,
                missing: row.try_get(6)?,
                epoch: row.try_get(7)?,
                replay_until: row.try_get(8)?,
            })
        });
    connection.answer(DOING, row).await
}
