//! Which of a stream's messages a group listens to.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::connection::Transaction;
use super::{SqliteBackend, error, value};
use crate::backend::{BindingHold, BindingParams, BindingRow, missing_group};
use crate::error::Error;

const DOING: &str = "declaring a group's bindings";

pub(super) async fn declare(backend: &SqliteBackend, params: &BindingParams) -> Result<BindingRow, Error> {
    let mut tx = backend.connections.begin(DOING).await?;
    let lock = backend.stream(params.stream).statements.binding_lock.clone();
    if tx.run(sqlx::query(lock).bind(params.group.0)).await?.rows.is_empty() {
        return Err(missing_group(params.group));
    }
    let row = declare_on(backend, &mut tx, params).await?;
    tx.commit().await?;
    Ok(row)
}

/// In a transaction, which is immediate.
pub(super) async fn declare_on(
    backend: &SqliteBackend,
    tx: &mut Transaction<'_>,
    params: &BindingParams,
) -> Result<BindingRow, Error> {
    let state = backend.stream(params.stream);
    let statements = &state.statements;
    let group = params.group.0;
    let listed = tx.run(sqlx::query(statements.binding_list.clone()).bind(group)).await?;
    let patterns: Result<Vec<String>, _> = listed.rows.iter().map(|row| row.try_get(0)).collect();
    let mut patterns = patterns.map_err(|err| error::map(DOING, err))?;
    patterns.sort_unstable();
    let declared = params.declared.as_deref().map(BindingRow::sorted).filter(|declared| *declared != patterns);
    let Some(declared) = declared else { return Ok(BindingRow { patterns, hold: None }) };
    let list = value::json(&declared);
    let hold = sqlx::query(statements.binding_hold.clone())
        .bind(group)
        .bind(list.clone())
        .bind(params.presence.map(|presence| presence.0));
    if let Some(row) = tx.run(hold).await?.rows.first() {
        let hold = hold_of(row).map_err(|err| error::map(DOING, err))?;
        return Ok(BindingRow { patterns, hold: Some(hold) });
    }
    tx.run(sqlx::query(statements.binding_replace_rest.clone()).bind(group).bind(list.clone())).await?;
    tx.run(sqlx::query(statements.binding_replace.clone()).bind(group).bind(list)).await?;
    Ok(BindingRow { patterns: declared, hold: None })
}

fn hold_of(row: &SqliteRow) -> Result<BindingHold, sqlx::Error> {
    Ok(BindingHold::of(row.try_get(0)?, row.try_get::<Option<String>, _>(1)?))
}
