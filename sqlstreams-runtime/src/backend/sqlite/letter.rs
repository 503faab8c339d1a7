//! Dead letters: listed, counted, read, redriven, discarded.

use std::time::Duration;

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, SqlStr, Sqlite};

use super::connection::Answer;
use super::connection::Durability::Durable;
use super::{SqliteBackend, error, message, value};
use crate::backend::{
    DeadLetterRow, DiscardScope, LetterBatch, LetterCountRow, LetterCounts, LetterParams, LetterRow, TroubleStatus,
};
use crate::error::Error;
use crate::identity::{GroupId, MessageId, StreamId};
use crate::time::Timestamp;

/// A statement with the parameters that all of these share.
fn page(sql: &SqlStr, params: &LetterParams) -> Query<'static, Sqlite, SqliteArguments> {
    let filter = params.filter.clone();
    sqlx::query(sql.clone())
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

pub(super) async fn list(backend: &SqliteBackend, params: &LetterParams) -> Result<Vec<DeadLetterRow>, Error> {
    const DOING: &str = "listing dead letters";
    let state = backend.stream(params.stream);
    let rows = backend.connections.read(DOING, page(&state.statements.letter_list, params)).await?;
    rows.iter().map(letter).collect::<Result<_, _>>().map_err(|err| error::map(DOING, err))
}

fn letter(row: &SqliteRow) -> Result<DeadLetterRow, sqlx::Error> {
    let count = |column: usize| row.try_get::<i32, _>(column).map(i32::cast_unsigned);
    let time = |column: usize| row.try_get::<Option<i64>, _>(column).map(|time| time.map(Timestamp));
    Ok(DeadLetterRow {
        id: MessageId(row.try_get(0)?),
        schema_version: count(1)?,
        message_key: row.try_get(2)?,
        attempts: count(3)?,
        failures: count(4)?,
        kills: count(5)?,
        delays: count(6)?,
        redrives: count(7)?,
        first_failed_at: time(8)?,
        died_at: time(9)?,
        error: row.try_get::<Option<String>, _>(10)?.unwrap_or_default(),
    })
}

pub(super) async fn count(
    backend: &SqliteBackend,
    params: &LetterParams,
    payloads: bool,
) -> Result<LetterCounts, Error> {
    const DOING: &str = "counting dead letters";
    let state = backend.stream(params.stream);
    let rows = backend.connections.read(DOING, page(&state.statements.letter_count, params).bind(payloads)).await?;
    counts(&rows).map_err(|err| error::map(DOING, err))
}

fn counts(rows: &[SqliteRow]) -> Result<LetterCounts, sqlx::Error> {
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
            first_died_at: Timestamp(row.try_get(6)?),
            last_died_at: Timestamp(row.try_get(7)?),
        });
    }
    Ok(counts)
}

pub(super) async fn read(
    backend: &SqliteBackend,
    stream: StreamId,
    group: GroupId,
    id: MessageId,
) -> Result<Option<LetterRow>, Error> {
    const DOING: &str = "reading a dead letter";
    let state = backend.stream(stream);
    let read = sqlx::query(state.statements.letter_read.clone()).bind(group.0).bind(id.0);
    let rows = backend.connections.read(DOING, read).await?;
    rows.first().map(with_message).transpose().map_err(|err| error::map(DOING, err))
}

fn with_message(row: &SqliteRow) -> Result<LetterRow, sqlx::Error> {
    const MESSAGE: usize = 13;
    let stored = row.try_get::<Option<i64>, _>(MESSAGE)?.is_some();
    let due = row.try_get::<Option<i64>, _>(12)?.map(Timestamp);
    Ok(LetterRow {
        letter: letter(row)?,
        status: TroubleStatus::of(row.try_get(11)?, due),
        message: if stored { Some(message::stored(row, MESSAGE)?) } else { None },
    })
}

pub(super) async fn redrive(
    backend: &SqliteBackend,
    params: &LetterParams,
    spread: Duration,
    now: Option<Timestamp>,
) -> Result<LetterBatch, Error> {
    const DOING: &str = "redriving dead letters";
    let state = backend.stream(params.stream);
    let redrive = page(&state.transactions.letter_redrive, params).bind(value::wait(spread)).bind(value::now(now));
    batch(&backend.connections.write(Durable, DOING, redrive).await?).map_err(|err| error::map(DOING, err))
}

pub(super) async fn discard(
    backend: &SqliteBackend,
    params: &LetterParams,
    scope: DiscardScope,
) -> Result<LetterBatch, Error> {
    const DOING: &str = "discarding messages";
    let state = backend.stream(params.stream);
    let discard = page(&state.transactions.letter_discard, params).bind(value::json(&scope.statuses()));
    batch(&backend.connections.write(Durable, DOING, discard).await?).map_err(|err| error::map(DOING, err))
}

fn batch(answer: &Answer) -> Result<LetterBatch, sqlx::Error> {
    let row = answer.rows.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok(LetterBatch {
        found: row.try_get(0)?,
        changed: row.try_get(1)?,
        last: row.try_get::<Option<i64>, _>(2)?.map(MessageId),
    })
}
