//! The log: appending and reading.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, SqlStr, Sqlite, Transaction};

use super::connection::Durability::Durable;
use super::{SqliteBackend, error, value};
use crate::backend::ReadParams;
use crate::error::Error;
use crate::identity::{MessageId, StreamId};
use crate::message::{NewMessage, StoredMessage};
use crate::time::Timestamp;

pub(super) async fn produce(
    backend: &SqliteBackend,
    stream: StreamId,
    version: u32,
    codec: i16,
    messages: &[NewMessage],
) -> Result<Vec<MessageId>, Error> {
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let state = backend.stream(stream);
    let insert = insert(state.statements.message_produce.clone(), version, codec, messages);
    let last = backend.connections.write(Durable, "producing", insert).await?.last_id;
    state.produced.fetch_max(last, Ordering::Relaxed);
    Ok(run_of_ids(last, messages.len()))
}

impl SqliteBackend {
    /// Appends messages in the caller's transaction; they become visible when it commits. How durable that
    /// is, the caller's `synchronous` pragma decides.
    ///
    /// # Errors
    /// As the port's `message_produce`. A transaction that was not begun with `begin immediate` conflicts
    /// with another writer at once.
    ///
    /// # Cancellation
    /// A dropped future leaves the transaction to the caller; roll it back.
    pub async fn produce_in(
        &self,
        tx: &mut Transaction<'_, Sqlite>,
        stream: StreamId,
        version: u32,
        codec: i16,
        messages: &[NewMessage],
    ) -> Result<Vec<MessageId>, Error> {
        const DOING: &str = "producing in a transaction";
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let state = self.stream(stream);
        let insert = insert(state.statements.message_produce.clone(), version, codec, messages);
        let done = insert.execute(&mut **tx).await.map_err(|err| error::map_in_transaction(DOING, err))?;
        self.look_at_durability(tx).await;
        Ok(run_of_ids(done.last_insert_rowid(), messages.len()))
    }

    /// Warns once when the caller's commits may be lost with the machine.
    pub(super) async fn look_at_durability(&self, tx: &mut Transaction<'_, Sqlite>) {
        const FULL: i64 = 2;
        if self.durability_known.swap(true, Ordering::Relaxed) {
            return;
        }
        let level = sqlx::query_scalar::<_, i64>(self.shared.durability_level.clone()).fetch_one(&mut **tx).await;
        if level.is_ok_and(|level| level < FULL) {
            tracing::warn!(
                "messages are produced in transactions whose commits a crash of the machine can take back - set \
                 `synchronous(SqliteSynchronous::Full)` on the pool's options"
            );
        }
    }
}

/// The payloads travel as one value, cut apart again by SQLite, so that one text serves any number of
/// messages: as fast as a multi-row VALUES, which has to be prepared anew for every number.
fn insert(sql: SqlStr, version: u32, codec: i16, messages: &[NewMessage]) -> Query<'static, Sqlite, SqliteArguments> {
    let mut payloads = Vec::with_capacity(messages.iter().map(|message| message.payload.len()).sum());
    let mut rest = Vec::with_capacity(messages.len());
    for message in messages {
        rest.push((
            payloads.len() + 1,
            message.payload.len(),
            message.routing_key.as_deref(),
            message.message_key.as_deref(),
            message.headers.as_deref(),
        ));
        payloads.extend_from_slice(message.payload.as_bytes());
    }
    sqlx::query(sql).bind(version.cast_signed()).bind(codec).bind(payloads).bind(value::json(&rest))
}

/// The ids of one insert: no other writer can come between them.
fn run_of_ids(last: i64, count: usize) -> Vec<MessageId> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    (last - count + 1..=last).map(MessageId).collect()
}

pub(super) async fn read(backend: &SqliteBackend, params: &ReadParams) -> Result<Vec<StoredMessage>, Error> {
    const DOING: &str = "reading messages";
    let state = backend.stream(params.stream);
    let mut messages = Vec::new();
    let mut ranges = vec![(params.low, params.high)];
    while let Some((low, high)) = ranges.pop() {
        let read = sqlx::query(state.statements.message_read.clone())
            .bind(low)
            .bind(high)
            .bind(value::json(&params.versions))
            .bind(params.only_version)
            .bind(value::globs(&params.bindings));
        match backend.connections.read(DOING, read).await {
            // All payloads together are one value here, and that can be too large for SQLite.
            Err(err) if error::says_too_large(&err) && high - low > 1 => {
                let middle = low + (high - low) / 2;
                ranges.extend([(middle, high), (low, middle)]);
            }
            Err(err) => return Err(err),
            Ok(rows) => {
                let row = rows.first().ok_or(sqlx::Error::RowNotFound);
                let read = row.and_then(|row| unpack(row, &params.bindings, &mut messages));
                read.map_err(|err| error::map(DOING, err))?;
            }
        }
    }
    Ok(messages)
}

/// (id, creation, version, codec, lengths of routing key, message key, headers, payload, scheduled time)
type Packed = (i64, i64, u32, i16, Option<usize>, Option<usize>, Option<usize>, Option<usize>, Option<i64>);

/// Unpacks an answer of `message_read`. The texts of all messages share one allocation.
fn unpack(row: &SqliteRow, bindings: &[String], messages: &mut Vec<StoredMessage>) -> Result<(), sqlx::Error> {
    let packed: Vec<Packed> = serde_json::from_slice(value::bytes(row, 0)?.unwrap_or(b"[]"))
        .map_err(|err| sqlx::Error::Decode(Box::new(err)))?;
    let mut texts = Bytes::copy_from_slice(value::bytes(row, 1)?.unwrap_or_default());
    let lengths = |p: &Packed| [p.4, p.5, p.6, p.7].into_iter().flatten().sum::<usize>();
    if packed.iter().map(lengths).sum::<usize>() != texts.len() {
        return Err(sqlx::Error::Decode("the messages' lengths do not add up to their texts'".into()));
    }
    let mut cut = |length: Option<usize>| length.map(|length| texts.split_to(length));
    messages.reserve(packed.len());
    for (id, created_at, schema_version, codec, routing_key, message_key, headers, payload, scheduled_at) in packed {
        let message = StoredMessage {
            id: MessageId(id),
            created_at: Timestamp(created_at),
            scheduled_at: scheduled_at.map(Timestamp),
            schema_version,
            codec,
            routing_key: cut(routing_key),
            message_key: cut(message_key),
            headers: cut(headers),
            payload: cut(payload),
        };
        if bindings.is_empty() || is_bound(&message, bindings) {
            messages.push(message);
        }
    }
    Ok(())
}

pub(super) fn is_bound(message: &StoredMessage, bindings: &[String]) -> bool {
    let key = message.routing_key.as_deref().and_then(|key| std::str::from_utf8(key).ok());
    key.is_some_and(|key| bindings.iter().any(|pattern| sqlstreams_schema::pattern_matches(pattern, key)))
}

/// Decodes a row whose message columns begin at `first`.
pub(super) fn stored(row: &SqliteRow, first: usize) -> Result<StoredMessage, sqlx::Error> {
    let text = |column: usize| Ok::<_, sqlx::Error>(value::bytes(row, first + column)?.map(Bytes::copy_from_slice));
    Ok(StoredMessage {
        id: MessageId(row.try_get(first)?),
        created_at: Timestamp(row.try_get(first + 1)?),
        scheduled_at: row.try_get::<Option<i64>, _>(first + 8)?.map(Timestamp),
        schema_version: row.try_get::<i32, _>(first + 2)?.cast_unsigned(),
        codec: row.try_get(first + 3)?,
        routing_key: text(4)?,
        message_key: text(5)?,
        headers: text(6)?,
        payload: text(7)?,
    })
}
