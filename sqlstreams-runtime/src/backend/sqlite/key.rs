//! Message keys: what keeps them from running.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::connection::Durability::Durable;
use super::{SqliteBackend, error, value};
use crate::backend::{KeyGateParams, KeyGateRow};
use crate::error::Error;
use crate::identity::{GroupId, LeaseToken, MessageId, StreamId};

pub(super) async fn gate(backend: &SqliteBackend, params: &KeyGateParams) -> Result<Vec<KeyGateRow>, Error> {
    const DOING: &str = "looking for busy keys";
    let state = backend.stream(params.stream);
    let asks: Vec<_> =
        params.keys.iter().map(|ask| (&*ask.key, ask.low, ask.message.map(|message| message.0))).collect();
    let gate = sqlx::query(state.statements.key_gate.clone())
        .bind(params.group.0)
        .bind(value::json(&asks))
        .bind(value::tokens(&params.own));
    let rows = backend.connections.read(DOING, gate).await?;
    let row = |row: &SqliteRow| {
        Ok(KeyGateRow {
            laned: row.try_get(0)?,
            lane_runs: row.try_get(1)?,
            busy: row.try_get(2)?,
            ticketed: row.try_get(3)?,
        })
    };
    rows.iter().map(row).collect::<Result<_, _>>().map_err(|err| error::map(DOING, err))
}

pub(super) async fn ticket(
    backend: &SqliteBackend,
    stream: StreamId,
    group: GroupId,
    token: LeaseToken,
    message: MessageId,
) -> Result<Option<i64>, Error> {
    const DOING: &str = "lining a message in trouble up";
    let state = backend.stream(stream);
    let ticket = sqlx::query(state.statements.key_ticket.clone()).bind(group.0).bind(token.0).bind(message.0);
    let answer = backend.connections.write(Durable, DOING, ticket).await?;
    let ticket = answer.rows.first().map(|row| row.try_get(0)).transpose();
    ticket.map_err(|err| error::map(DOING, err))
}
