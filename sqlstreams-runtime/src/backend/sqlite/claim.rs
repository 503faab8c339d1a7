//! Claims of fresh messages.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::connection::Durability::{Durable, Relaxed};
use super::{SqliteBackend, error, value};
use crate::backend::{ClaimParams, ClaimRow};
use crate::error::Error;

const DOING: &str = "claiming messages";

pub(super) async fn take(backend: &SqliteBackend, params: &ClaimParams) -> Result<ClaimRow, Error> {
    let state = backend.stream(params.stream);
    let query = |sql: &sqlx::SqlStr| {
        sqlx::query(sql.clone())
            .bind(params.group.0)
            .bind(params.width)
            .bind(params.token.0)
            .bind(params.presence.0)
            .bind(value::tokens(&params.settled))
    };
    if params.settled.is_empty() {
        let rows = backend.connections.read(DOING, query(&state.statements.claim_take_look)).await?;
        let seen = claim(&rows)?;
        if seen.missing || params.width <= 0 || seen.head <= seen.high {
            return Ok(seen);
        }
    }
    let durability = if params.durable { Durable } else { Relaxed };
    let answer = backend.connections.write(durability, DOING, query(&state.transactions.claim_take)).await?;
    claim(&answer.rows)
}

fn claim(rows: &[SqliteRow]) -> Result<ClaimRow, Error> {
    let read = |row: &SqliteRow| {
        let head = row.try_get(2)?;
        Ok(ClaimRow {
            low: row.try_get(0)?,
            high: row.try_get(1)?,
            head,
            proven: head,
            contended: false,
            pending: false,
            missing: row.try_get(3)?,
            epoch: row.try_get(4)?,
            replay_until: row.try_get(5)?,
        })
    };
    rows.first().ok_or(sqlx::Error::RowNotFound).and_then(read).map_err(|err| error::map(DOING, err))
}
