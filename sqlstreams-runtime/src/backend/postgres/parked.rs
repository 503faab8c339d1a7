//! Ranges that wait for a build that reads their version.

use super::{PostgresBackend, lease};
use crate::backend::{ClaimParams, LeaseRow};
use crate::error::Error;

const DOING: &str = "taking a parked range";

pub(super) async fn take(
    backend: &PostgresBackend,
    params: &ClaimParams,
    versions: &[i32],
) -> Result<Option<LeaseRow>, Error> {
    let state = backend.stream(params.stream);
    let mut connection = backend.engine(DOING).await?;
    let row = backend
        .query(&state.statements.parked_take)
        .bind(params.group.0)
        .bind(versions)
        .bind(params.width)
        .bind(params.token.0)
        .bind(params.presence.0)
        .fetch_optional(&mut *connection)
        .await
        .and_then(|row| row.as_ref().map(lease::lease).transpose());
    connection.answer(DOING, row).await
}
