//! Messages in trouble.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::lease::next_row;
use super::{PostgresBackend, message, value};
use crate::backend::{ExceptionRow, ExceptionSettleParams, ExceptionTakeParams, logged};
use crate::error::Error;
use crate::identity::{GroupId, LeaseToken, MessageId, StreamId};

pub(super) async fn take(backend: &PostgresBackend, params: &ExceptionTakeParams) -> Result<Vec<ExceptionRow>, Error> {
    const DOING: &str = "taking messages in trouble";
    let state = backend.stream(params.stream);
    let orphans = backend.wake.taking_orphan_turn();
    let mut connection = backend.engine(DOING).await?;
    let rows = backend
        .query(&state.statements.exception_take)
        .bind(params.group.0)
        .bind(params.limit)
        .bind(params.token.0)
        .bind(params.presence.0)
        .bind(&params.versions)
        .bind(params.max_kills)
        .bind(value::now(params.now))
        .bind(params.suspects)
        .bind(value::now(params.due_from))
        .bind(orphans)
        .fetch_all(&mut *connection)
        .await
        .and_then(|rows| rows.iter().map(taken).collect());
    connection.answer(DOING, rows).await
}

fn taken(row: &PgRow) -> Result<ExceptionRow, sqlx::Error> {
    const MESSAGE: usize = 9;
    let stored = row.try_get::<Option<i64>, _>(MESSAGE)?.is_some();
    Ok(ExceptionRow {
        id: MessageId(row.try_get(0)?),
        attempts: row.try_get(1)?,
        failures: row.try_get(2)?,
        delays: row.try_get(3)?,
        kills: row.try_get(4)?,
        due: value::timestamp(row, 5)?,
        held_to: row.try_get(6)?,
        message_key: row.try_get(7)?,
        replay_until: row.try_get(8)?,
        message: if stored { message::stored(std::slice::from_ref(row), MESSAGE)?.pop() } else { None },
    })
}

pub(super) async fn settle(backend: &PostgresBackend, params: &ExceptionSettleParams) -> Result<Vec<MessageId>, Error> {
    const DOING: &str = "settling messages in trouble";
    let state = backend.stream(params.stream);
    let next: Vec<_> = params.exceptions.iter().map(|exception| next_row(&exception.next)).collect();
    let mut connection = backend.engine(DOING).await?;
    let ids = backend
        .scalar::<i64>(&state.statements.exception_settle)
        .bind(params.group.0)
        .bind(params.token.0)
        .bind(params.exceptions.iter().map(|exception| exception.message.0).collect::<Vec<_>>())
        .bind(next.iter().map(|next| next.0).collect::<Vec<_>>())
        .bind(next.iter().map(|next| next.1).collect::<Vec<_>>())
        .bind(next.iter().map(|next| next.2).collect::<Vec<_>>())
        .bind(value::now(params.now))
        .bind(logged(params.log))
        .fetch_all(&mut *connection)
        .await;
    connection.answer(DOING, ids.map(|ids| ids.into_iter().map(MessageId).collect())).await
}

pub(super) async fn give_back(
    backend: &PostgresBackend,
    stream: StreamId,
    group: GroupId,
    token: LeaseToken,
) -> Result<(), Error> {
    const DOING: &str = "giving messages in trouble back";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let result =
        backend.query(&state.statements.exception_return).bind(group.0).bind(token.0).execute(&mut *connection).await;
    connection.answer(DOING, result.map(|_| ())).await
}

pub(super) async fn due(
    backend: &PostgresBackend,
    stream: StreamId,
    group: GroupId,
) -> Result<Option<Duration>, Error> {
    const DOING: &str = "looking for due messages";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let wait =
        backend.scalar::<Option<i64>>(&state.statements.exception_due).bind(group.0).fetch_one(&mut *connection).await;
    let wait = connection.answer(DOING, wait).await?;
    Ok(wait.map(|wait| Duration::from_micros(wait.max(0).cast_unsigned())))
}
