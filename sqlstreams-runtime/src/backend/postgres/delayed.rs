//! Messages that wait for their time.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{PostgresBackend, error, partition, value};
use crate::backend::{PromoteParams, PromoteRow};
use crate::error::Error;
use crate::identity::{DelayedId, StreamId};
use crate::time::Timestamp;

const HEALINGS: u32 = 8;

pub(super) async fn cancel(backend: &PostgresBackend, stream: StreamId, id: DelayedId) -> Result<bool, Error> {
    const DOING: &str = "cancelling a delayed message";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let cancel = backend.scalar::<i64>(&state.statements.delayed_cancel).bind(id.0);
    let cancelled = cancel.fetch_one(&mut *connection).await;
    connection.answer(DOING, cancelled).await.map(|cancelled| cancelled > 0)
}

pub(super) async fn promote(backend: &PostgresBackend, params: &PromoteParams) -> Result<PromoteRow, Error> {
    const DOING: &str = "moving due messages into the log";
    let state = backend.stream(params.stream);
    let mut connection = backend.engine(DOING).await?;
    let mut healings = 0;
    let (row, newest) = loop {
        let promote = backend
            .query(&state.statements.delayed_promote)
            .bind(value::now(params.since))
            .bind(params.limit)
            .bind(value::now(params.now));
        match promote.fetch_one(&mut *connection).await.and_then(|row| promoted(&row)) {
            Err(err) if error::is_missing_partition(&err) && healings < HEALINGS => {
                partition::ensure(backend, params.stream, params.limit << healings).await?;
                healings += 1;
            }
            answer => break connection.answer(DOING, answer).await?,
        }
    };
    drop(connection);
    if let Some(newest) = newest.filter(|newest| state.bound.wants_room(*newest)) {
        partition::keep_ahead(backend, params.stream, newest).await;
    }
    Ok(row)
}

fn promoted(row: &PgRow) -> Result<(PromoteRow, Option<i64>), sqlx::Error> {
    let wait = |wait: i64| Duration::from_micros(wait.max(0).cast_unsigned());
    let promoted = PromoteRow {
        promoted: row.try_get(0)?,
        reached: row.try_get::<Option<i64>, _>(2)?.map(Timestamp),
        next: row.try_get::<Option<i64>, _>(3)?.map(wait),
    };
    Ok((promoted, row.try_get(1)?))
}

pub(super) async fn heads(
    backend: &PostgresBackend,
    streams: &[StreamId],
) -> Result<Vec<(StreamId, DelayedId)>, Error> {
    const DOING: &str = "looking for delayed messages";
    let streams: Vec<_> = streams.iter().map(|stream| stream.0).collect();
    let mut connection = backend.engine(DOING).await?;
    let heads = backend.query(&backend.shared.delayed_heads).bind(streams).fetch_all(&mut *connection).await;
    let read = |row: &PgRow| Ok((StreamId(row.try_get(0)?), DelayedId(row.try_get(1)?)));
    let heads = heads.and_then(|rows| rows.iter().map(read).collect());
    connection.answer(DOING, heads).await
}
