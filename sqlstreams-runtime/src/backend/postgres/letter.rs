//! Dead letters: listed, counted, read, redriven, discarded.

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row, SqlStr};

use super::{PostgresBackend, message, value};
use crate::backend::{
    DeadLetterRow, DiscardScope, LetterBatch, LetterCountRow, LetterCounts, LetterParams, LetterRow, TroubleStatus,
};
use crate::error::Error;
use crate::identity::{GroupId, MessageId, StreamId};
use crate::time::Timestamp;

/// A statement with the parameters that all of these share.
fn page(backend: &PostgresBackend, sql: &SqlStr, params: &LetterParams) -> Query<'static, Postgres, PgArguments> {
    let filter = params.filter.clone();
    backend
        .query(sql)
        .bind(params.group.0)
        .bind(params.after.0)
        .bind(params.limit)
        .bind(params.last.0)
        .bind(filter.error_contains)
        .bind(filter.error_starts_with)
        .bind(filter.version.map(u32::cast_signed))
        .bind(value::now(filter.died_since))
        .bind(value::now(filter.died_until))
}

pub(super) async fn list(backend: &PostgresBackend, params: &LetterParams) -> Result<Vec<DeadLetterRow>, Error> {
    const DOING: &str = "listing dead letters";
    let state = backend.stream(params.stream);
    let mut connection = backend.engine(DOING).await?;
    let rows = page(backend, &state.statements.letter_list, params)
        .fetch_all(&mut *connection)
        .await
        .and_then(|rows| rows.iter().map(letter).collect());
    connection.answer(DOING, rows).await
}

fn letter(row: &PgRow) -> Result<DeadLetterRow, sqlx::Error> {
    let count = |column: usize| row.try_get::<i32, _>(column).map(i32::cast_unsigned);
    Ok(DeadLetterRow {
        id: MessageId(row.try_get(0)?),
        schema_version: count(1)?,
        message_key: row.try_get(2)?,
        attempts: count(3)?,
        failures: count(4)?,
        kills: count(5)?,
        delays: count(6)?,
        redrives: count(7)?,
        first_failed_at: value::optional_timestamp(row, 8)?,
        died_at: value::optional_timestamp(row, 9)?,
        error: row.try_get::<Option<String>, _>(10)?.unwrap_or_default(),
    })
}

pub(super) async fn count(
    backend: &PostgresBackend,
    params: &LetterParams,
    payloads: bool,
) -> Result<LetterCounts, Error> {
    const DOING: &str = "counting dead letters";
    let state = backend.stream(params.stream);
    let mut connection = backend.engine(DOING).await?;
    let rows = page(backend, &state.statements.letter_count, params).bind(payloads).fetch_all(&mut *connection).await;
    connection.answer(DOING, rows.and_then(|rows| counts(&rows))).await
}

fn counts(rows: &[PgRow]) -> Result<LetterCounts, sqlx::Error> {
    let mut counts = LetterCounts::default();
    for row in rows {
        let number = |column: usize| row.try_get::<i64, _>(column).map(i64::cast_unsigned);
        (counts.messages, counts.stored) = (number(8)?, number(9)?);
        counts.groups.push(LetterCountRow {
            error: row.try_get(0)?,
            schema_version: row.try_get::<i32, _>(1)?.cast_unsigned(),
            messages: number(2)?,
            stored: number(3)?,
            oldest: MessageId(row.try_get(4)?),
            newest: MessageId(row.try_get(5)?),
            first_died_at: value::timestamp(row, 6)?,
            last_died_at: value::timestamp(row, 7)?,
        });
    }
    Ok(counts)
}

pub(super) async fn read(
    backend: &PostgresBackend,
    stream: StreamId,
    group: GroupId,
    id: MessageId,
) -> Result<Option<LetterRow>, Error> {
    const DOING: &str = "reading a dead letter";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let row = backend
        .query(&state.statements.letter_read)
        .bind(group.0)
        .bind(id.0)
        .fetch_optional(&mut *connection)
        .await
        .and_then(|row| row.as_ref().map(with_message).transpose());
    connection.answer(DOING, row).await
}

fn with_message(row: &PgRow) -> Result<LetterRow, sqlx::Error> {
    const MESSAGE: usize = 13;
    let stored = row.try_get::<Option<i64>, _>(MESSAGE)?.is_some();
    Ok(LetterRow {
        letter: letter(row)?,
        status: TroubleStatus::of(row.try_get(11)?, value::optional_timestamp(row, 12)?),
        message: if stored { message::stored(std::slice::from_ref(row), MESSAGE)?.pop() } else { None },
    })
}

pub(super) async fn redrive(
    backend: &PostgresBackend,
    params: &LetterParams,
    spread: Duration,
    now: Option<Timestamp>,
) -> Result<LetterBatch, Error> {
    let state = backend.stream(params.stream);
    let redrive =
        page(backend, &state.statements.letter_redrive, params).bind(value::wait(spread)).bind(value::now(now));
    behind_gate(backend, params.group, "redriving dead letters", redrive).await
}

pub(super) async fn discard(
    backend: &PostgresBackend,
    params: &LetterParams,
    scope: DiscardScope,
) -> Result<LetterBatch, Error> {
    let state = backend.stream(params.stream);
    let discard = page(backend, &state.statements.letter_discard, params).bind(scope.statuses());
    behind_gate(backend, params.group, "discarding messages", discard).await
}

async fn behind_gate(
    backend: &PostgresBackend,
    group: GroupId,
    doing: &str,
    change: Query<'_, Postgres, PgArguments>,
) -> Result<LetterBatch, Error> {
    let mut connection = backend.transaction(doing).await?;
    let batch = change_on(backend, &mut connection, group, change).await;
    connection.answer(doing, batch).await
}

async fn change_on(
    backend: &PostgresBackend,
    connection: &mut PgConnection,
    group: GroupId,
    change: Query<'_, Postgres, PgArguments>,
) -> Result<LetterBatch, sqlx::Error> {
    backend.query(&backend.shared.group_gate).bind(group.0).execute(&mut *connection).await?;
    let row = change.fetch_one(&mut *connection).await?;
    Ok(LetterBatch {
        found: row.try_get(0)?,
        changed: row.try_get(1)?,
        last: row.try_get::<Option<i64>, _>(2)?.map(MessageId),
    })
}
