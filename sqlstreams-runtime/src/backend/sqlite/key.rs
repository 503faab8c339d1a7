//! Message keys: what keeps them from running.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{SqliteBackend, error, value};
use crate::backend::{KeyGateParams, KeyGateRow};
use crate::error::Error;

pub(super) async fn gate(backend: &SqliteBackend, params: &KeyGateParams) -> Result<Vec<KeyGateRow>, Error> {
    const DOING: &str = "looking for busy keys";
    let state = backend.stream(params.stream);
    let gate = sqlx::query(state.statements.key_gate.clone())
        .bind(params.group.0)
        .bind(value::json(&params.keys))
        .bind(value::tokens(&params.own));
    let rows = backend.connections.read(DOING, gate).await?;
    let row = |row: &SqliteRow| Ok(KeyGateRow { laned: row.try_get(0)?, busy: row.try_get(1)? });
    rows.iter().map(row).collect::<Result<_, _>>().map_err(|err| error::map(DOING, err))
}
