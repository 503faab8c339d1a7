//! The delivery log.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::connection::Durability::Durable;
use super::{SqliteBackend, error, value};
use crate::backend::{AttemptRow, AttemptStatus};
use crate::error::Error;
use crate::identity::{GroupId, LeaseToken, MessageId, StreamId};
use crate::time::Timestamp;

pub(super) async fn append(
    backend: &SqliteBackend,
    stream: StreamId,
    token: LeaseToken,
    handled: &[MessageId],
) -> Result<(), Error> {
    let state = backend.stream(stream);
    let handled: Vec<_> = handled.iter().map(|message| message.0).collect();
    let append = sqlx::query(state.statements.delivery_append.clone()).bind(token.0).bind(value::json(&handled));
    backend.connections.write(Durable, "logging handled messages", append).await.map(|_| ())
}

pub(super) async fn list(
    backend: &SqliteBackend,
    stream: StreamId,
    group: GroupId,
    message: MessageId,
    limit: i64,
) -> Result<Vec<AttemptRow>, Error> {
    const DOING: &str = "reading the delivery log";
    let state = backend.stream(stream);
    let list = sqlx::query(state.statements.delivery_list.clone()).bind(group.0).bind(message.0).bind(limit);
    let rows = backend.connections.read(DOING, list).await?;
    rows.iter().map(attempt).collect::<Result<_, _>>().map_err(|err| error::map(DOING, err))
}

fn attempt(row: &SqliteRow) -> Result<AttemptRow, sqlx::Error> {
    Ok(AttemptRow {
        attempt: row.try_get::<i32, _>(0)?.cast_unsigned(),
        status: AttemptStatus::of(row.try_get(1)?).map_err(|err| sqlx::Error::Decode(err.into()))?,
        error: row.try_get(2)?,
        at: Timestamp(row.try_get(3)?),
    })
}
