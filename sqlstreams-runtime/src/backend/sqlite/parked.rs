//! Ranges that wait for a build that reads their version.

use super::connection::Durability::Durable;
use super::{SqliteBackend, error, lease, value};
use crate::backend::{ClaimParams, LeaseRow};
use crate::error::Error;

const DOING: &str = "taking a parked range";

pub(super) async fn take(
    backend: &SqliteBackend,
    params: &ClaimParams,
    versions: &[i32],
) -> Result<Option<LeaseRow>, Error> {
    let state = backend.stream(params.stream);
    let query = |sql: &sqlx::SqlStr| {
        sqlx::query(sql.clone())
            .bind(params.token.0)
            .bind(params.group.0)
            .bind(params.presence.0)
            .bind(value::json(&versions))
            .bind(params.width)
    };
    if params.width <= 0 || !backend.finds(DOING, query(&state.statements.parked_take_look)).await? {
        return Ok(None);
    }
    let answer = backend.connections.write(Durable, DOING, query(&state.transactions.parked_take)).await?;
    lease::first(&answer.rows).map_err(|err| error::map(DOING, err))
}
