//! Which of a stream's messages a group listens to.

use sqlx::{PgConnection, Row};

use super::PostgresBackend;
use crate::backend::{BindingHold, BindingParams, BindingRow, missing_group};
use crate::error::Error;

const DOING: &str = "declaring a group's bindings";

pub(super) async fn declare(backend: &PostgresBackend, params: &BindingParams) -> Result<BindingRow, Error> {
    let mut connection = backend.transaction(DOING).await?;
    let row = locked(backend, &mut connection, params).await;
    connection.answer(DOING, row).await?.ok_or_else(|| missing_group(params.group))
}

async fn locked(
    backend: &PostgresBackend,
    connection: &mut PgConnection,
    params: &BindingParams,
) -> Result<Option<BindingRow>, sqlx::Error> {
    let state = backend.stream(params.stream);
    let lock = backend.query(&state.statements.binding_lock).bind(params.group.0);
    if lock.fetch_optional(&mut *connection).await?.is_none() {
        return Ok(None);
    }
    declare_on(backend, connection, params).await.map(Some)
}

/// In a transaction that has locked the group.
pub(super) async fn declare_on(
    backend: &PostgresBackend,
    connection: &mut PgConnection,
    params: &BindingParams,
) -> Result<BindingRow, sqlx::Error> {
    let statements = &backend.stream(params.stream).statements;
    let list = backend.scalar(&statements.binding_list).bind(params.group.0);
    let mut patterns: Vec<String> = list.fetch_all(&mut *connection).await?;
    patterns.sort_unstable();
    let declared = params.declared.as_deref().map(BindingRow::sorted).filter(|declared| *declared != patterns);
    let Some(declared) = declared else { return Ok(BindingRow { patterns, hold: None }) };
    let hold = backend
        .query(&statements.binding_hold)
        .bind(params.group.0)
        .bind(&declared)
        .bind(params.presence.map(|presence| presence.0))
        .fetch_optional(&mut *connection)
        .await?;
    if let Some(row) = hold {
        let hold = BindingHold::of(row.try_get(0)?, row.try_get::<Option<String>, _>(1)?);
        return Ok(BindingRow { patterns, hold: Some(hold) });
    }
    let replace = backend.query(&statements.binding_replace).bind(params.group.0).bind(&declared);
    replace.execute(&mut *connection).await?;
    Ok(BindingRow { patterns: declared, hold: None })
}
