//! The delivery log.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{PostgresBackend, value};
use crate::backend::{AttemptRow, AttemptStatus};
use crate::error::Error;
use crate::identity::{GroupId, LeaseToken, MessageId, StreamId};

pub(super) async fn append(
    backend: &PostgresBackend,
    stream: StreamId,
    token: LeaseToken,
    handled: &[MessageId],
) -> Result<(), Error> {
    const DOING: &str = "logging handled messages";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let result = backend
        .query(&state.statements.delivery_append)
        .bind(token.0)
        .bind(handled.iter().map(|message| message.0).collect::<Vec<_>>())
        .execute(&mut *connection)
        .await;
    connection.answer(DOING, result.map(|_| ())).await
}

pub(super) async fn list(
    backend: &PostgresBackend,
    stream: StreamId,
    group: GroupId,
    message: MessageId,
    limit: i64,
) -> Result<Vec<AttemptRow>, Error> {
    const DOING: &str = "reading the delivery log";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let rows = backend
        .query(&state.statements.delivery_list)
        .bind(group.0)
        .bind(message.0)
        .bind(limit)
        .fetch_all(&mut *connection)
        .await
        .and_then(|rows| rows.iter().map(attempt).collect());
    connection.answer(DOING, rows).await
}

fn attempt(row: &PgRow) -> Result<AttemptRow, sqlx::Error> {
    Ok(AttemptRow {
        attempt: row.try_get::<i32, _>(0)?.cast_unsigned(),
        status: AttemptStatus::of(row.try_get(1)?).map_err(|err| sqlx::Error::Decode(err.into()))?,
        error: row.try_get(2)?,
        at: value::timestamp(row, 3)?,
    })
}
