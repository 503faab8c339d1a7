//! The log: appending and reading.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, Sqlite, SqlStr, Transaction};

use super::connection::Durability::Durable;
use super::{SqliteBackend, error, value};
use crate::backend::ReadParams;
use crate::error::Error;
use crate::identity::{MessageId, StreamId};
use crate::message::{NewMessage, StoredMessage};

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
    async fn look_at_durability(&self, tx: &mut Transaction<'_, Sqlite>) {
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
    let read = sqlx::query(state.statements.message_read.clone())
        .bind(params.low)
        .bind(params.high)
        .bind(value::json(&params.versions))
        .bind(params.only_version)
        .bind(value::globs(&params.bindings));
    let mut rows = backend.connections.read(DOING, read).await?;
    if !params.bindings.is_empty() {
        rows.retain(|row| is_bound(row, &params.bindings));
    }
    stored(&rows, 0).map_err(|err| error::map(DOING, err))
}

/// A key that can't be read stays, so that reading the row tells.
fn is_bound(row: &SqliteRow, bindings: &[String]) -> bool {
    match row.try_get::<Option<&str>, _>(ROUTING_KEY) {
        Ok(Some(key)) => bindings.iter().any(|pattern| sqlstreams_schema::pattern_matches(pattern, key)),
        Ok(None) => false,
        Err(_) => true,
    }
}

const ROUTING_KEY: usize = 4;
/// A message's columns that are texts or bytes: routing key, message key, headers, payload.
const TEXTS: std::ops::Range<usize> = ROUTING_KEY..8;

/// Decodes rows whose message columns begin at `first`. The texts of all rows share one allocation.
pub(super) fn stored(rows: &[SqliteRow], first: usize) -> Result<Vec<StoredMessage>, sqlx::Error> {
    let mut texts = Vec::with_capacity(rows.len() * TEXTS.len());
    for row in rows {
        for column in TEXTS {
            texts.push(value::bytes(row, first + column)?);
        }
    }
    let mut arena = Vec::with_capacity(texts.iter().flatten().map(|text| text.len()).sum());
    texts.iter().flatten().for_each(|text| arena.extend_from_slice(text));
    let arena = Bytes::from(arena);
    let mut start = 0;
    let mut slice = |text: &Option<&[u8]>| {
        text.map(|text| {
            start += text.len();
            arena.slice(start - text.len()..start)
        })
    };
    rows.iter()
        .zip(texts.chunks_exact(TEXTS.len()))
        .map(|(row, texts)| {
            Ok(StoredMessage {
                id: MessageId(row.try_get(first)?),
                created_at: crate::time::Timestamp(row.try_get(first + 1)?),
                schema_version: row.try_get::<i32, _>(first + 2)?.cast_unsigned(),
                codec: row.try_get(first + 3)?,
                routing_key: slice(&texts[0]),
                message_key: slice(&texts[1]),
                headers: slice(&texts[2]),
                payload: slice(&texts[3]),
            })
        })
        .collect()
}
