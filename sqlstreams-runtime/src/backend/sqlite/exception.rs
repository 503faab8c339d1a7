//! Messages in trouble.

use std::time::Duration;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::connection::Durability::Durable;
use super::{SqliteBackend, error, message, value};
use crate::backend::{ExceptionRow, ExceptionSettleParams, ExceptionTakeParams, logged};
use crate::error::Error;
use crate::identity::{GroupId, LeaseToken, MessageId, StreamId};
use crate::time::Timestamp;

pub(super) async fn take(backend: &SqliteBackend, params: &ExceptionTakeParams) -> Result<Vec<ExceptionRow>, Error> {
    const DOING: &str = "taking messages in trouble";
    let state = backend.stream(params.stream);
    let query = |sql: &sqlx::SqlStr| {
        sqlx::query(sql.clone())
            .bind(params.group.0)
            .bind(params.limit)
            .bind(params.token.0)
            .bind(params.presence.0)
            .bind(value::json(&params.versions))
            .bind(params.max_kills)
            .bind(value::now(params.now))
            .bind(params.suspects)
            .bind(value::now(params.due_from))
    };
    if params.limit.max(params.suspects) <= 0
        || !backend.finds(DOING, query(&state.statements.exception_take_look)).await?
    {
        return Ok(Vec::new());
    }
    backend.connections.write(Durable, DOING, query(&state.transactions.exception_take)).await?;
    let rows = backend.connections.read(DOING, query(&state.statements.exception_take_read)).await?;
    taken(&rows).map_err(|err| error::map(DOING, err))
}

fn taken(rows: &[SqliteRow]) -> Result<Vec<ExceptionRow>, sqlx::Error> {
    const MESSAGE: usize = 9;
    rows.iter()
        .map(|row| {
            let stored = row.try_get::<Option<i64>, _>(MESSAGE)?.is_some();
            Ok(ExceptionRow {
                id: MessageId(row.try_get(0)?),
                attempts: row.try_get(1)?,
                failures: row.try_get(2)?,
                delays: row.try_get(3)?,
                kills: row.try_get(4)?,
                due: Timestamp(row.try_get(5)?),
                held_to: row.try_get(6)?,
                message_key: row.try_get(7)?,
                replay_until: row.try_get(8)?,
                message: if stored { Some(message::stored(row, MESSAGE)?) } else { None },
            })
        })
        .collect()
}

pub(super) async fn settle(backend: &SqliteBackend, params: &ExceptionSettleParams) -> Result<Vec<MessageId>, Error> {
    const DOING: &str = "settling messages in trouble";
    let state = backend.stream(params.stream);
    let outcomes: Vec<_> = params
        .exceptions
        .iter()
        .map(|exception| {
            let (next, wait, error) = value::next(&exception.next);
            (exception.message.0, next, wait, error)
        })
        .collect();
    let logged = logged(params.log);
    let transactions = &state.transactions;
    let text = if logged.is_empty() { &transactions.exception_settle } else { &transactions.exception_settle_logged };
    let settle = sqlx::query(text.clone())
        .bind(params.group.0)
        .bind(params.token.0)
        .bind(value::json(&outcomes))
        .bind(value::now(params.now));
    let settle = if logged.is_empty() { settle } else { settle.bind(value::json(&logged)) };
    let answer = backend.connections.write(Durable, DOING, settle).await?;
    let ids = answer.rows.iter().map(|row| row.try_get(0).map(MessageId)).collect::<Result<_, _>>();
    ids.map_err(|err| error::map(DOING, err))
}

pub(super) async fn give_back(
    backend: &SqliteBackend,
    stream: StreamId,
    group: GroupId,
    token: LeaseToken,
) -> Result<(), Error> {
    let state = backend.stream(stream);
    let give = sqlx::query(state.statements.exception_return.clone()).bind(group.0).bind(token.0);
    backend.connections.write(Durable, "giving messages in trouble back", give).await.map(|_| ())
}

pub(super) async fn due(backend: &SqliteBackend, stream: StreamId, group: GroupId) -> Result<Option<Duration>, Error> {
    const DOING: &str = "looking for due messages";
    let state = backend.stream(stream);
    let due = sqlx::query(state.statements.exception_due.clone()).bind(group.0);
    let rows = backend.connections.read(DOING, due).await?;
    let wait = rows.first().map_or(Ok(None), |row| row.try_get::<Option<i64>, _>(0));
    let wait = wait.map_err(|err| error::map(DOING, err))?;
    Ok(wait.map(|wait| Duration::from_micros(wait.max(0).cast_unsigned())))
}
