//! The log: appending and reading.

use bytes::Bytes;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row, Transaction};

use super::value::JsonText;
use super::{PostgresBackend, error, partition, value};
use crate::backend::ReadParams;
use crate::error::{Error, Kind};
use crate::identity::{MessageId, StreamId};
use crate::message::{NewMessage, StoredMessage};

/// Each try makes room for the whole batch, and for twice as much as the one before it: others may fill the room
/// meanwhile.
const HEALINGS: u32 = 8;
pub(super) const PRODUCING: &str = "producing";
pub(super) const PRODUCING_IN: &str = "producing in a transaction";

pub(super) async fn produce(
    backend: &PostgresBackend,
    stream: StreamId,
    version: u32,
    codec: i16,
    messages: &[NewMessage],
) -> Result<Vec<MessageId>, Error> {
    let state = backend.stream(stream);
    let mut healings = 0;
    let ids = loop {
        let mut connection = backend.producing(PRODUCING).await?;
        let insert = insert(backend.query(&state.statements.message_produce), version, codec, messages);
        match insert.fetch_all(&mut *connection).await.and_then(|rows| ids(&rows)) {
            Err(err) if error::is_missing_partition(&err) && healings < HEALINGS => {
                connection.failed(PRODUCING, err).await;
                drop(connection);
                heal(backend, stream, messages, healings).await?;
                healings += 1;
            }
            answer => break connection.answer(PRODUCING, answer).await?,
        }
    };
    if let Some(last) = ids.last().filter(|last| state.bound.wants_room(last.0)) {
        partition::keep_ahead(backend, stream, last.0).await;
    }
    Ok(ids)
}

impl PostgresBackend {
    /// Appends messages in the caller's transaction; they become visible when it commits.
    ///
    /// # Errors
    /// As the port's `message_produce`. When no partition was ahead, one is added and the error is a
    /// conflict: the transaction has to be run again.
    ///
    /// # Cancellation
    /// A dropped future leaves the transaction to the caller; roll it back.
    pub async fn produce_in(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        stream: StreamId,
        version: u32,
        codec: i16,
        messages: &[NewMessage],
    ) -> Result<Vec<MessageId>, Error> {
        let state = self.stream(stream);
        self.probe().await?;
        let insert = insert(self.query(&state.statements.message_produce_in), version, codec, messages);
        let ids = match insert.fetch_all(&mut **tx).await.and_then(|rows| ids(&rows)) {
            Ok(ids) => ids,
            Err(err) if error::is_missing_partition(&err) => {
                heal(self, stream, messages, 0).await?;
                return Err(error::partition_added());
            }
            Err(err) => return Err(error::map(PRODUCING_IN, err)),
        };
        if let Some(last) = ids.last().filter(|last| state.bound.wants_room(last.0)) {
            partition::keep_ahead(self, stream, last.0).await;
        }
        Ok(ids)
    }
}

/// Makes room after an insert that found none: it stored nothing, whatever becomes of the room.
async fn heal(
    backend: &PostgresBackend,
    stream: StreamId,
    messages: &[NewMessage],
    healings: u32,
) -> Result<(), Error> {
    let made = partition::make_room(backend, stream, room(messages) << healings).await.map_err(Error::unsent)?;
    // Later tries ask for more than the batch needs, and others may use the room up. A partition holds two ids or more.
    if made || healings > 0 || room(messages) <= 2 * partition::MOST_AT_ONCE {
        return Ok(());
    }
    Err(Error::new(
        Kind::Message,
        "SQLS-0322",
        format!(
            "a batch of {} messages needs more than {} new partitions of stream {stream} - produce it in parts; a new \
             stream can have larger partitions",
            messages.len(),
            partition::MOST_AT_ONCE
        ),
    ))
}

/// The ids that a batch draws; far below what a shift could overflow.
fn room(messages: &[NewMessage]) -> i64 {
    i64::from(u32::try_from(messages.len()).unwrap_or(u32::MAX))
}

/// The statement with its parameters.
fn insert<'q>(
    statement: Query<'q, Postgres, PgArguments>,
    version: u32,
    codec: i16,
    messages: &'q [NewMessage],
) -> Query<'q, Postgres, PgArguments> {
    let payloads: Vec<_> = messages.iter().map(|message| JsonText(&message.payload)).collect();
    let routing: Vec<_> = messages.iter().map(|message| message.routing_key.as_deref()).collect();
    let keys: Vec<_> = messages.iter().map(|message| message.message_key.as_deref()).collect();
    let headers: Vec<_> = messages.iter().map(|message| message.headers.as_deref().map(JsonText)).collect();
    statement.bind(version.cast_signed()).bind(codec).bind(payloads).bind(routing).bind(keys).bind(headers)
}

fn ids(rows: &[PgRow]) -> Result<Vec<MessageId>, sqlx::Error> {
    rows.iter().map(|row| row.try_get(0).map(MessageId)).collect()
}

pub(super) async fn read(backend: &PostgresBackend, params: &ReadParams) -> Result<Vec<StoredMessage>, Error> {
    const DOING: &str = "reading messages";
    let state = backend.stream(params.stream);
    let mut connection = backend.engine(DOING).await?;
    let rows = backend
        .query(&state.statements.message_read)
        .bind(params.low)
        .bind(params.high)
        .bind(&params.versions)
        .bind(params.only_version)
        .bind(routing_regex(&params.bindings))
        .fetch_all(&mut *connection)
        .await
        .and_then(|rows| stored(&rows, 0));
    connection.answer(DOING, rows).await
}

pub(super) fn routing_regex(bindings: &[String]) -> Option<String> {
    if bindings.is_empty() {
        return None;
    }
    let each: Vec<String> = bindings.iter().map(|pattern| sqlstreams_schema::pattern_to_regex(pattern)).collect();
    Some(each.join("|"))
}

/// Decodes rows whose message columns begin at `first`. The texts of all rows share one allocation.
pub(super) fn stored(rows: &[PgRow], first: usize) -> Result<Vec<StoredMessage>, sqlx::Error> {
    let mut arena = Vec::with_capacity(rows.len() * 256);
    let mut spans = Vec::with_capacity(rows.len() * 4);
    for row in rows {
        for column in [first + 4, first + 5, first + 6] {
            spans.push(append(&mut arena, value::bytes(row, column)?));
        }
        let payload = match value::bytes(row, first + 7)? {
            Some(json) => Some(json),
            None => value::bytes(row, first + 8)?,
        };
        spans.push(append(&mut arena, payload));
    }
    let arena = Bytes::from(arena);
    let slice = |span: &Option<(usize, usize)>| span.map(|(start, end)| arena.slice(start..end));
    rows.iter()
        .zip(spans.chunks_exact(4))
        .map(|(row, spans)| {
            Ok(StoredMessage {
                id: MessageId(row.try_get(first)?),
                created_at: value::timestamp(row, first + 1)?,
                scheduled_at: value::optional_timestamp(row, first + 9)?,
                schema_version: row.try_get::<i32, _>(first + 2)?.cast_unsigned(),
                codec: row.try_get(first + 3)?,
                routing_key: slice(&spans[0]),
                message_key: slice(&spans[1]),
                headers: slice(&spans[2]),
                payload: slice(&spans[3]),
            })
        })
        .collect()
}

fn append(arena: &mut Vec<u8>, bytes: Option<&[u8]>) -> Option<(usize, usize)> {
    let bytes = bytes?;
    let start = arena.len();
    arena.extend_from_slice(bytes);
    Some((start, arena.len()))
}
