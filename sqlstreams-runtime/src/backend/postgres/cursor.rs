//! A group's position, and what keeps it from moving.

use sqlx::Row;

use super::PostgresBackend;
use crate::backend::{PositionRow, StallCause};
use crate::error::{Error, Kind};
use crate::identity::{GroupId, StreamId};

pub(super) async fn observe(backend: &PostgresBackend, stream: StreamId, groups: &[GroupId]) -> Result<(), Error> {
    const DOING: &str = "observing open producers";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let groups: Vec<_> = groups.iter().map(|group| group.0).collect();
    let result = backend.query(&state.statements.cursor_observe).bind(groups).execute(&mut *connection).await;
    connection.answer(DOING, result.map(|_| ())).await
}

pub(super) async fn stall(
    backend: &PostgresBackend,
    stream: StreamId,
    _group: GroupId,
) -> Result<Vec<StallCause>, Error> {
    const DOING: &str = "looking for open producers";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let rows = backend
        .query(&state.statements.cursor_stall)
        .fetch_all(&mut *connection)
        .await
        .and_then(|rows| rows.iter().map(cause).collect());
    connection.answer(DOING, rows).await
}

fn cause(row: &sqlx::postgres::PgRow) -> Result<StallCause, sqlx::Error> {
    Ok(StallCause {
        transaction: row.try_get(0)?,
        pid: row.try_get(1)?,
        name: row.try_get(2)?,
        prepared: row.try_get(3)?,
    })
}

pub(super) async fn position(
    backend: &PostgresBackend,
    stream: StreamId,
    group: GroupId,
) -> Result<PositionRow, Error> {
    const DOING: &str = "reading a group's position";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let row = backend
        .query(&state.statements.cursor_position)
        .bind(group.0)
        .fetch_optional(&mut *connection)
        .await
        .and_then(|row| row.as_ref().map(read_position).transpose());
    let row = connection.answer(DOING, row).await?;
    row.ok_or_else(|| {
        Error::new(Kind::Declaration, "SQLS-0302", format!("group {group} has no cursor - register the group again"))
    })
}

fn read_position(row: &sqlx::postgres::PgRow) -> Result<PositionRow, sqlx::Error> {
    Ok(PositionRow {
        head: row.try_get(0)?,
        claimed: row.try_get(1)?,
        settled: row.try_get(2)?,
        ready: row.try_get(3)?,
        inflight: row.try_get(4)?,
        dead: row.try_get(5)?,
        parked: row.try_get(6)?,
    })
}

pub(super) async fn advance(backend: &PostgresBackend, stream: StreamId, group: GroupId) -> Result<bool, Error> {
    const DOING: &str = "advancing a group's settled position";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let advance = backend.scalar(&state.statements.cursor_advance).bind(group.0);
    let moved = advance.fetch_one(&mut *connection).await;
    connection.answer(DOING, moved).await
}
