//! Messages that wait for their time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::connection::Durability::{Durable, Relaxed};
use super::{SqliteBackend, error, value};
use crate::backend::{PromoteParams, PromoteRow};
use crate::error::Error;
use crate::identity::{DelayedId, StreamId};
use crate::time::Timestamp;

pub(super) async fn cancel(backend: &SqliteBackend, stream: StreamId, id: DelayedId) -> Result<bool, Error> {
    let state = backend.stream(stream);
    let cancel = sqlx::query(state.transactions.delayed_cancel.clone()).bind(id.0);
    let answer = backend.connections.write(Durable, "cancelling a delayed message", cancel).await?;
    Ok(!answer.rows.is_empty())
}

pub(super) async fn promote(backend: &SqliteBackend, params: &PromoteParams) -> Result<PromoteRow, Error> {
    const DOING: &str = "moving due messages into the log";
    let state = backend.stream(params.stream);
    let now = value::clock(params.now);
    let look = || sqlx::query(state.statements.delayed_promote_look.clone()).bind(now.0);
    let mut next = wait(&backend.connections.read(DOING, look()).await?)?;
    let mut promoted = PromoteRow::default();
    if next.is_some_and(|next| next <= 0) && params.limit > 0 {
        let promote = sqlx::query(state.transactions.delayed_promote.clone()).bind(params.limit).bind(now.0);
        let rows = backend.connections.write(Relaxed, DOING, promote).await?.rows;
        for row in &rows {
            let (due, newest) = read(row).map_err(|err| error::map(DOING, err))?;
            promoted.reached = promoted.reached.max(Some(due));
            state.produced.fetch_max(newest, Ordering::Relaxed);
        }
        promoted.promoted = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        next = wait(&backend.connections.read(DOING, look()).await?)?;
    }
    promoted.next = next.map(|next| Duration::from_micros(next.max(0).cast_unsigned()));
    Ok(promoted)
}

fn wait(rows: &[SqliteRow]) -> Result<Option<i64>, Error> {
    let wait = rows.first().map_or(Ok(None), |row| row.try_get(0));
    wait.map_err(|err| error::map("looking for due messages", err))
}

fn read(row: &SqliteRow) -> Result<(Timestamp, i64), sqlx::Error> {
    Ok((Timestamp(row.try_get(0)?), row.try_get(1)?))
}

pub(super) async fn heads(backend: &SqliteBackend, streams: &[StreamId]) -> Result<Vec<(StreamId, DelayedId)>, Error> {
    const DOING: &str = "looking for delayed messages";
    let streams: Vec<_> = streams.iter().map(|stream| stream.0).collect();
    let heads = sqlx::query(backend.shared.delayed_heads.clone()).bind(value::json(&streams));
    let rows = backend.connections.read(DOING, heads).await?;
    let read = |row: &SqliteRow| Ok((StreamId(row.try_get(0)?), DelayedId(row.try_get(1)?)));
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|err| error::map(DOING, err))
}
