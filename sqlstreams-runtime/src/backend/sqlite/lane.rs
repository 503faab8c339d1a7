//! Lanes: the rows of keys in trouble.

use std::time::Duration;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::connection::Durability::Durable;
use super::{SqliteBackend, error, message, value};
use crate::backend::{LaneMove, LaneParams, LaneReadParams, LaneRow};
use crate::error::Error;
use crate::identity::{GroupId, MessageId, StreamId};
use crate::message::StoredMessage;

pub(super) async fn read(backend: &SqliteBackend, params: &LaneReadParams) -> Result<Vec<StoredMessage>, Error> {
    const DOING: &str = "reading a key's messages";
    let state = backend.stream(params.stream);
    let mut after = params.after;
    loop {
        let read = sqlx::query(state.statements.lane_read.clone())
            .bind(&params.message_key)
            .bind(after)
            .bind(params.held_to)
            .bind(params.limit)
            .bind(value::json(&params.versions))
            .bind(value::globs(&params.bindings));
        let rows = backend.connections.read(DOING, read).await?;
        let stored = rows.iter().map(|row| message::stored(row, 0)).collect::<Result<Vec<_>, _>>();
        let mut stored = stored.map_err(|err| error::map(DOING, err))?;
        let last = stored.last().map(|message| message.id.0);
        // Globs let some pass that no pattern matches.
        stored.retain(|message| params.bindings.is_empty() || message::is_bound(message, &params.bindings));
        match last {
            Some(last) if stored.is_empty() => after = last,
            _ => return Ok(stored),
        }
    }
}

pub(super) async fn move_on(backend: &SqliteBackend, lane: &LaneParams, to: &LaneMove) -> Result<Option<i64>, Error> {
    const DOING: &str = "moving a key's messages on";
    let state = backend.stream(lane.stream);
    let (next, wait, error) = to.next.as_ref().map_or(("go", 0, None), value::next);
    let move_on = sqlx::query(state.statements.lane_move.clone())
        .bind(lane.group.0)
        .bind(lane.token.0)
        .bind(lane.at.0)
        .bind(to.to.0)
        .bind(to.schema_version)
        .bind(next)
        .bind(wait)
        .bind(error)
        .bind(value::now(lane.now));
    let answer = backend.connections.write(Durable, DOING, move_on).await?;
    let held_to = answer.rows.first().map(|row| row.try_get(0)).transpose();
    held_to.map_err(|err| error::map(DOING, err))
}

pub(super) async fn bury(
    backend: &SqliteBackend,
    lane: &LaneParams,
    error: &str,
    successor: Option<(MessageId, u32)>,
    held_to: i64,
) -> Result<bool, Error> {
    let state = backend.stream(lane.stream);
    let bury = match successor {
        Some(_) => &state.transactions.lane_bury,
        None => &state.statements.lane_bury,
    };
    let bury = sqlx::query(bury.clone())
        .bind(lane.group.0)
        .bind(lane.token.0)
        .bind(lane.at.0)
        .bind(successor.map(|(id, _)| id.0))
        .bind(successor.map(|(_, version)| version))
        .bind(held_to)
        .bind(error)
        .bind(value::now(lane.now));
    let answer = backend.connections.write(Durable, "recording a dead letter", bury).await?;
    Ok(!answer.rows.is_empty())
}

pub(super) async fn end(backend: &SqliteBackend, lane: &LaneParams, held_to: i64) -> Result<bool, Error> {
    let state = backend.stream(lane.stream);
    let end = sqlx::query(state.statements.lane_end.clone())
        .bind(lane.group.0)
        .bind(lane.token.0)
        .bind(lane.at.0)
        .bind(held_to);
    let answer = backend.connections.write(Durable, "ending a key's lane", end).await?;
    Ok(!answer.rows.is_empty())
}

pub(super) async fn list(
    backend: &SqliteBackend,
    stream: StreamId,
    group: GroupId,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<LaneRow>, Error> {
    const DOING: &str = "listing keys that are held up";
    let state = backend.stream(stream);
    let list = sqlx::query(state.statements.lane_list.clone()).bind(group.0).bind(after).bind(limit);
    let rows = backend.connections.read(DOING, list).await?;
    rows.iter().map(row).collect::<Result<_, _>>().map_err(|err| error::map(DOING, err))
}

fn row(row: &SqliteRow) -> Result<LaneRow, sqlx::Error> {
    Ok(LaneRow {
        key: row.try_get(0)?,
        message: MessageId(row.try_get(1)?),
        schema_version: row.try_get::<i32, _>(2)?.cast_unsigned(),
        held_to: MessageId(row.try_get(3)?),
        running: row.try_get(4)?,
        attempts: row.try_get::<i32, _>(5)?.cast_unsigned(),
        failures: row.try_get::<i32, _>(6)?.cast_unsigned(),
        due_in: Duration::from_micros(row.try_get::<i64, _>(7)?.max(0).cast_unsigned()),
        error: row.try_get(8)?,
    })
}
