//! Lanes: the rows of keys in trouble.

use super::lease::next_row;
use super::{PostgresBackend, message, value};
use crate::backend::{LaneMove, LaneParams, LaneReadParams};
use crate::error::Error;
use crate::identity::MessageId;
use crate::message::StoredMessage;

pub(super) async fn read(backend: &PostgresBackend, params: &LaneReadParams) -> Result<Vec<StoredMessage>, Error> {
    const DOING: &str = "reading a key's messages";
    let state = backend.stream(params.stream);
    let mut connection = backend.engine(DOING).await?;
    let rows = backend
        .query(&state.statements.lane_read)
        .bind(&params.message_key)
        .bind(params.after)
        .bind(params.held_to)
        .bind(params.limit)
        .bind(&params.versions)
        .bind(message::routing_regex(&params.bindings))
        .fetch_all(&mut *connection)
        .await
        .and_then(|rows| message::stored(&rows, 0));
    connection.answer(DOING, rows).await
}

pub(super) async fn move_on(backend: &PostgresBackend, lane: &LaneParams, to: &LaneMove) -> Result<Option<i64>, Error> {
    const DOING: &str = "moving a key's messages on";
    let state = backend.stream(lane.stream);
    let (next, wait, error) = to.next.as_ref().map_or(("go", 0, None), next_row);
    let mut connection = backend.engine(DOING).await?;
    let held_to = backend
        .scalar(&state.statements.lane_move)
        .bind(lane.group.0)
        .bind(lane.token.0)
        .bind(lane.at.0)
        .bind(to.to.0)
        .bind(to.schema_version.cast_signed())
        .bind(next)
        .bind(wait)
        .bind(error)
        .bind(value::now(lane.now))
        .fetch_optional(&mut *connection)
        .await;
    connection.answer(DOING, held_to).await
}

pub(super) async fn bury(
    backend: &PostgresBackend,
    lane: &LaneParams,
    error: &str,
    successor: Option<(MessageId, u32)>,
    held_to: i64,
) -> Result<bool, Error> {
    const DOING: &str = "recording a dead letter";
    let state = backend.stream(lane.stream);
    let mut connection = backend.engine(DOING).await?;
    let buried = backend
        .scalar::<i64>(&state.statements.lane_bury)
        .bind(lane.group.0)
        .bind(lane.token.0)
        .bind(lane.at.0)
        .bind(successor.map(|(id, _)| id.0))
        .bind(successor.map(|(_, version)| version.cast_signed()))
        .bind(held_to)
        .bind(error)
        .bind(value::now(lane.now))
        .fetch_one(&mut *connection)
        .await;
    connection.answer(DOING, buried.map(|buried| buried > 0)).await
}

pub(super) async fn end(backend: &PostgresBackend, lane: &LaneParams, held_to: i64) -> Result<bool, Error> {
    const DOING: &str = "ending a key's lane";
    let state = backend.stream(lane.stream);
    let mut connection = backend.engine(DOING).await?;
    let ended = backend
        .query(&state.statements.lane_end)
        .bind(lane.group.0)
        .bind(lane.token.0)
        .bind(lane.at.0)
        .bind(held_to)
        .execute(&mut *connection)
        .await;
    connection.answer(DOING, ended.map(|ended| ended.rows_affected() > 0)).await
}
