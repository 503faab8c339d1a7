//! A group's position.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::connection::Durability::Relaxed;
use super::{SqliteBackend, error};
use crate::backend::PositionRow;
use crate::error::{Error, Kind};
use crate::identity::{GroupId, StreamId};

pub(super) async fn position(backend: &SqliteBackend, stream: StreamId, group: GroupId) -> Result<PositionRow, Error> {
    const DOING: &str = "reading a group's position";
    let state = backend.stream(stream);
    let position = sqlx::query(state.statements.cursor_position.clone()).bind(group.0);
    let rows = backend.connections.read(DOING, position).await?;
    match rows.first() {
        Some(row) => read_position(row).map_err(|err| error::map(DOING, err)),
        None => Err(Error::new(
            Kind::Declaration,
            "SQLS-0302",
            format!("group {group} has no cursor - register the group again"),
        )),
    }
}

fn read_position(row: &SqliteRow) -> Result<PositionRow, sqlx::Error> {
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

pub(super) async fn advance(backend: &SqliteBackend, stream: StreamId, group: GroupId) -> Result<bool, Error> {
    const DOING: &str = "advancing a group's settled position";
    let state = backend.stream(stream);
    let look = sqlx::query(state.statements.cursor_advance_look.clone()).bind(group.0);
    if !backend.finds(DOING, look).await? {
        return Ok(false);
    }
    let advance = sqlx::query(state.statements.cursor_advance.clone()).bind(group.0);
    let answer = backend.connections.write(Relaxed, DOING, advance).await?;
    Ok(!answer.rows.is_empty())
}
