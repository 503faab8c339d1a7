//! Appending with options: idempotency keys, and delivery at a later time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, SqlStr, Sqlite, Transaction};

use super::connection::Durability::Durable;
use super::{SqliteBackend, StreamState, error, value};
use crate::backend::{FirstRow, ProduceWithParams, ProducedRow};
use crate::error::Error;
use crate::identity::{DelayedId, MessageId, StreamId};
use crate::message::Deliver;
use crate::time::Timestamp;

pub(super) async fn produce(
    backend: &SqliteBackend,
    params: &ProduceWithParams<'_>,
) -> Result<Vec<ProducedRow>, Error> {
    const DOING: &str = "producing";
    if params.messages.is_empty() {
        return Ok(Vec::new());
    }
    let state = backend.stream(params.stream);
    let plan = Plan::new(params);
    let insert = plan.query(&state.transactions.message_produce_with);
    let rows = backend.connections.write(Durable, DOING, insert).await?.rows;
    let mut produced = plan.answers(&rows).map_err(|err| error::map(DOING, err))?;
    note(&state, &produced);
    for row in &mut produced {
        let Some(read) = first(&state, row) else { continue };
        // The new messages of the same call are stored by now.
        let rows = backend.connections.read(DOING, read).await.map_err(Error::ambiguous)?;
        complete(row, rows.first()).map_err(|err| error::map(DOING, err))?;
    }
    Ok(produced)
}

impl SqliteBackend {
    /// As the port's `message_produce_with`, in the caller's transaction.
    ///
    /// # Errors
    /// As there. A transaction that was not begun with `begin immediate` conflicts with another writer at once.
    ///
    /// # Cancellation
    /// A dropped future leaves the transaction to the caller; roll it back.
    pub async fn produce_with_in(
        &self,
        tx: &mut Transaction<'_, Sqlite>,
        params: &ProduceWithParams<'_>,
    ) -> Result<Vec<ProducedRow>, Error> {
        const DOING: &str = "producing in a transaction";
        if params.messages.is_empty() {
            return Ok(Vec::new());
        }
        let state = self.stream(params.stream);
        let plan = Plan::new(params);
        let statements = &state.statements;
        let failed = |err| error::map_in_transaction(DOING, err);
        plan.query(&statements.message_produce_with).execute(&mut **tx).await.map_err(failed)?;
        let rows = plan.query(&statements.message_produce_with_look).fetch_all(&mut **tx).await.map_err(failed)?;
        plan.query(&statements.message_produce_with_append).execute(&mut **tx).await.map_err(failed)?;
        plan.query(&statements.message_produce_with_delay).execute(&mut **tx).await.map_err(failed)?;
        let mut produced = plan.answers(&rows).map_err(failed)?;
        for row in &mut produced {
            let Some(read) = first(&state, row) else { continue };
            let rows = read.fetch_all(&mut **tx).await.map_err(failed)?;
            complete(row, rows.first()).map_err(failed)?;
        }
        self.look_at_durability(tx).await;
        Ok(produced)
    }

    /// As the port's `delayed_cancel`, in the caller's transaction.
    ///
    /// # Errors
    /// As there. A transaction that was not begun with `begin immediate` conflicts with another writer at once.
    pub async fn cancel_in(
        &self,
        tx: &mut Transaction<'_, Sqlite>,
        stream: StreamId,
        id: DelayedId,
    ) -> Result<bool, Error> {
        const DOING: &str = "cancelling a delayed message in a transaction";
        let state = self.stream(stream);
        let failed = |err| error::map_in_transaction(DOING, err);
        for statement in [&state.statements.delayed_cancel_key, &state.statements.delayed_cancel] {
            let done = sqlx::query(statement.clone()).bind(id.0).fetch_all(&mut **tx).await.map_err(failed)?;
            if !done.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The messages of a call as the statements take them. What is due is decided here, once for all of them: the
/// database's clock is this machine's.
struct Plan<'a> {
    params: &'a ProduceWithParams<'a>,
    now: Timestamp,
    times: Vec<Option<Timestamp>>,
    payloads: Vec<u8>,
    rest: String,
}

impl<'a> Plan<'a> {
    fn new(params: &'a ProduceWithParams<'a>) -> Self {
        let now = value::clock(params.now);
        let mut plan = Self { params, now, times: Vec::new(), payloads: Vec::new(), rest: String::new() };
        let mut rest = Vec::with_capacity(params.messages.len());
        for item in params.messages {
            let deliver_at = match item.deliver {
                Deliver::Now => None,
                Deliver::After(wait) => Some(now.plus(wait)),
                Deliver::At(time) => Some(time),
            };
            let deliver_at = deliver_at.filter(|time| *time > now);
            let message = &item.message;
            rest.push((
                plan.payloads.len() + 1,
                message.payload.len(),
                message.routing_key.as_deref(),
                message.message_key.as_deref(),
                message.headers.as_deref(),
                deliver_at.map(|time| time.0),
                item.key.map(value::digest),
                value::digest(item.payload_hash),
                value::wait(item.keep),
            ));
            plan.times.push(deliver_at);
            plan.payloads.extend_from_slice(message.payload.as_bytes());
        }
        plan.rest = value::json(&rest);
        plan
    }

    fn query(&self, sql: &SqlStr) -> Query<'static, Sqlite, SqliteArguments> {
        sqlx::query(sql.clone())
            .bind(self.params.version.cast_signed())
            .bind(self.params.codec)
            .bind(self.payloads.clone())
            .bind(self.rest.clone())
            .bind(self.now.0)
    }

    fn answers(&self, rows: &[SqliteRow]) -> Result<Vec<ProducedRow>, sqlx::Error> {
        if rows.len() != self.times.len() {
            return Err(sqlx::Error::RowNotFound);
        }
        rows.iter().zip(&self.times).map(|(row, time)| self.answer(row, *time)).collect()
    }

    fn answer(&self, row: &SqliteRow, time: Option<Timestamp>) -> Result<ProducedRow, sqlx::Error> {
        if row.try_get::<bool, _>(2)? {
            return Ok(match time {
                None => ProducedRow::Message(MessageId(row.try_get(0)?)),
                Some(time) => {
                    let wait = Duration::from_micros(time.0.abs_diff(self.now.0));
                    ProducedRow::Delayed { id: DelayedId(row.try_get(1)?), wait }
                }
            });
        }
        let first = match row.try_get::<Option<i64>, _>(3)? {
            Some(id) => FirstRow::Message(MessageId(id)),
            None => FirstRow::Delayed(DelayedId(row.try_get(4)?)),
        };
        let same: bool = row.try_get(5)?;
        Ok(if same { ProducedRow::Duplicate(first) } else { ProducedRow::Conflict { first, payload: None } })
    }
}

/// What this process produced itself is no news to it.
fn note(state: &StreamState, produced: &[ProducedRow]) {
    for row in produced {
        if let ProducedRow::Message(id) = row {
            state.produced.fetch_max(id.0, Ordering::Relaxed);
        }
    }
}

/// The question for the first payload of a conflict.
fn first(state: &StreamState, row: &ProducedRow) -> Option<Query<'static, Sqlite, SqliteArguments>> {
    let ProducedRow::Conflict { first, .. } = row else { return None };
    let (message, delayed) = match first {
        FirstRow::Message(id) => (Some(id.0), None),
        FirstRow::Delayed(id) => (None, Some(id.0)),
    };
    Some(sqlx::query(state.statements.message_produce_with_first.clone()).bind(message).bind(delayed))
}

fn complete(row: &mut ProducedRow, found: Option<&SqliteRow>) -> Result<(), sqlx::Error> {
    if let (ProducedRow::Conflict { payload, .. }, Some(found)) = (row, found) {
        *payload = value::bytes(found, 0)?.map(Bytes::copy_from_slice);
    }
    Ok(())
}
