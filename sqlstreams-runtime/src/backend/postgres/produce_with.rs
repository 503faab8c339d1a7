//! Appending with options: idempotency keys, and delivery at a later time.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row, Transaction};

use super::value::JsonText;
use super::{PostgresBackend, StreamState, error, partition, value};
use crate::backend::{FirstRow, KEY_HELD, ProduceWithParams, ProducedRow};
use crate::error::{Error, Kind};
use crate::identity::{DelayedId, Digest, MessageId, StreamId};
use crate::message::{Deliver, ProduceItem};

const HEALINGS: u32 = 8;
/// How often a key may be taken by others and given back while it is being produced with.
const ROUNDS: u32 = 8;
const PRODUCING: &str = "producing";
const IN_TRANSACTION: &str = "producing in a transaction";

pub(super) async fn produce(
    backend: &PostgresBackend,
    params: &ProduceWithParams<'_>,
) -> Result<Vec<ProducedRow>, Error> {
    let state = backend.stream(params.stream);
    let mut healings = 0;
    let produced = loop {
        let mut connection = backend.producing(PRODUCING).await?;
        let mut call = Call::new(backend, &state, params, true);
        match call.run(&mut connection).await {
            Err(err) if error::is_missing_partition(&err) && !call.inserted && healings < HEALINGS => {
                connection.failed(PRODUCING, err).await;
                drop(connection);
                partition::ensure(backend, params.stream, room(params.messages.len()) << healings).await?;
                healings += 1;
            }
            Err(err) if error::is_lock_timeout(&err) && !call.inserted => {
                return Err(key_held(connection.failed(PRODUCING, err).await));
            }
            // A part may be stored when a later statement fails.
            answer if call.inserted => break connection.answer(PRODUCING, answer).await.map_err(Error::ambiguous)?,
            answer => break connection.answer(PRODUCING, answer).await?,
        }
    };
    keep_ahead(backend, &state, params.stream, &produced).await;
    settled(produced)
}

impl PostgresBackend {
    /// As the port's `message_produce_with`, in the caller's transaction.
    ///
    /// # Errors
    /// As there. Above READ COMMITTED, a key that another transaction stored meanwhile is a conflict: the transaction
    /// has to be run again.
    ///
    /// # Cancellation
    /// A dropped future leaves the transaction to the caller; roll it back.
    pub async fn produce_with_in(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        params: &ProduceWithParams<'_>,
    ) -> Result<Vec<ProducedRow>, Error> {
        let state = self.stream(params.stream);
        let produced = match Call::new(self, &state, params, false).run(tx).await {
            Ok(produced) => produced,
            Err(err) if error::is_missing_partition(&err) => {
                partition::ensure(self, params.stream, room(params.messages.len())).await?;
                return Err(error::partition_added());
            }
            Err(err) => return Err(error::map(IN_TRANSACTION, err)),
        };
        keep_ahead(self, &state, params.stream, &produced).await;
        settled(produced)
    }

    /// As the port's `delayed_cancel`, in the caller's transaction.
    ///
    /// # Errors
    /// As there.
    pub async fn cancel_in(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        stream: StreamId,
        id: DelayedId,
    ) -> Result<bool, Error> {
        const DOING: &str = "cancelling a delayed message in a transaction";
        let state = self.stream(stream);
        let cancel = self.scalar::<i64>(&state.statements.delayed_cancel).bind(id.0);
        cancel.fetch_one(&mut **tx).await.map(|cancelled| cancelled > 0).map_err(|err| error::map(DOING, err))
    }
}

fn key_held(err: Error) -> Error {
    Error::new(
        Kind::Busy,
        KEY_HELD,
        "an open transaction holds the idempotency key - end it, or produce again later: nothing is stored twice",
    )
    .with_source(err)
}

fn room(messages: usize) -> i64 {
    i64::from(u32::try_from(messages).unwrap_or(u32::MAX))
}

async fn keep_ahead(
    backend: &PostgresBackend,
    state: &StreamState,
    stream: StreamId,
    produced: &[Option<ProducedRow>],
) {
    let ids = produced.iter().filter_map(|row| match row {
        Some(ProducedRow::Message(id)) => Some(id.0),
        _ => None,
    });
    if let Some(last) = ids.max().filter(|last| state.bound.wants_room(*last)) {
        partition::keep_ahead(backend, stream, last).await;
    }
}

fn settled(produced: Vec<Option<ProducedRow>>) -> Result<Vec<ProducedRow>, Error> {
    produced.into_iter().collect::<Option<_>>().ok_or_else(|| {
        Error::new(
            Kind::Busy,
            "SQLS-0221",
            "an idempotency key was taken and given back again and again while it was being produced with",
        )
        .ambiguous()
    })
}

/// One call on one connection.
struct Call<'a> {
    backend: &'a PostgresBackend,
    state: &'a StreamState,
    params: &'a ProduceWithParams<'a>,
    /// The commit is ours.
    own: bool,
    /// A statement that may have stored something has been answered.
    inserted: bool,
}

impl<'a> Call<'a> {
    fn new(backend: &'a PostgresBackend, state: &'a StreamState, params: &'a ProduceWithParams<'a>, own: bool) -> Self {
        Self { backend, state, params, own, inserted: false }
    }

    /// `None` for a message whose key could not be had.
    async fn run(&mut self, connection: &mut PgConnection) -> Result<Vec<Option<ProducedRow>>, sqlx::Error> {
        let mut produced = vec![None; self.params.messages.len()];
        for _ in 0..ROUNDS {
            let open: Vec<usize> = (0..produced.len()).filter(|place| produced[*place].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let items: Vec<_> = open.iter().map(|place| &self.params.messages[*place]).collect();
            let rows = self.insert(&items).fetch_all(&mut *connection).await?;
            self.inserted = true;
            for (place, row) in open.iter().zip(&rows) {
                produced[*place] = answer(row)?;
            }
            self.find(connection, &mut produced).await?;
        }
        self.read_first(connection, &mut produced).await?;
        Ok(produced)
    }

    fn insert(&self, items: &[&ProduceItem]) -> Query<'a, Postgres, PgArguments> {
        let payloads: Vec<_> = items.iter().map(|item| JsonText(&item.message.payload)).collect();
        let routing: Vec<_> = items.iter().map(|item| item.message.routing_key.as_deref()).collect();
        let message_keys: Vec<_> = items.iter().map(|item| item.message.message_key.as_deref()).collect();
        let headers: Vec<_> = items.iter().map(|item| item.message.headers.as_deref().map(JsonText)).collect();
        let at = |item: &&ProduceItem| if let Deliver::At(time) = item.deliver { Some(time.0) } else { None };
        let after =
            |item: &&ProduceItem| if let Deliver::After(wait) = item.deliver { Some(value::wait(wait)) } else { None };
        let at: Vec<_> = items.iter().map(at).collect();
        let after: Vec<_> = items.iter().map(after).collect();
        let keys: Vec<_> = items.iter().map(|item| item.key.map(|key| key.0.to_vec())).collect();
        let hashes: Vec<_> = items.iter().map(|item| item.payload_hash.0.to_vec()).collect();
        let keeps: Vec<_> = items.iter().map(|item| value::wait(item.keep)).collect();
        self.backend
            .query(&self.state.statements.message_produce_with)
            .bind(self.params.version.cast_signed())
            .bind(self.params.codec)
            .bind(payloads)
            .bind(routing)
            .bind(message_keys)
            .bind(headers)
            .bind(at)
            .bind(after)
            .bind(keys)
            .bind(hashes)
            .bind(keeps)
            .bind(value::now(self.params.now))
            .bind(self.own)
            .bind(self.params.patience.map(|patience| format!("{}ms", patience.as_millis().max(1))))
    }

    /// Looks, in a later snapshot, for keys that a transaction stored while the insert waited for it.
    async fn find(
        &self,
        connection: &mut PgConnection,
        produced: &mut [Option<ProducedRow>],
    ) -> Result<(), sqlx::Error> {
        let items = self.params.messages;
        let open = produced.iter().zip(items).filter(|(row, _)| row.is_none()).filter_map(|(_, item)| item.key);
        let open: Vec<_> = open.map(|key| key.0.to_vec()).collect();
        if open.is_empty() {
            return Ok(());
        }
        let find = self.backend.query(&self.state.statements.message_produce_with_find).bind(open);
        let mut known = HashMap::new();
        for row in find.fetch_all(connection).await? {
            let hash: Vec<u8> = row.try_get(3)?;
            known.insert(row.try_get::<Vec<u8>, _>(0)?, (first(row.try_get(1)?, row.try_get(2)?), hash));
        }
        for (row, item) in produced.iter_mut().zip(items).filter(|(row, _)| row.is_none()) {
            let Digest(key) = item.key.unwrap_or(Digest([0; 16]));
            if let Some((Some(first), hash)) = known.get(&key[..]) {
                *row = Some(taken(*first, hash[..] == item.payload_hash.0));
            }
        }
        Ok(())
    }

    async fn read_first(
        &self,
        connection: &mut PgConnection,
        produced: &mut [Option<ProducedRow>],
    ) -> Result<(), sqlx::Error> {
        for row in produced {
            let Some(ProducedRow::Conflict { first, payload }) = row else { continue };
            let (message, delayed) = match first {
                FirstRow::Message(id) => (Some(id.0), None),
                FirstRow::Delayed(id) => (None, Some(id.0)),
            };
            let read =
                self.backend.query(&self.state.statements.message_produce_with_first).bind(message).bind(delayed);
            let found = match read.fetch_optional(&mut *connection).await {
                // A role that only produces reads no payload: its conflicts name no path.
                Err(err) if error::is_permission(&err) => return Ok(()),
                found => found?,
            };
            if let Some(found) = found {
                let json = value::bytes(&found, 0)?;
                let stored = if json.is_some() { json } else { value::bytes(&found, 1)? };
                *payload = stored.map(Bytes::copy_from_slice);
            }
        }
        Ok(())
    }
}

fn answer(row: &PgRow) -> Result<Option<ProducedRow>, sqlx::Error> {
    let (id, delayed): (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
    if row.try_get(3)? {
        return Ok(match (id, delayed) {
            (Some(id), _) => Some(ProducedRow::Message(MessageId(id))),
            (None, Some(id)) => {
                let wait = row.try_get::<Option<i64>, _>(2)?.unwrap_or_default().max(0);
                Some(ProducedRow::Delayed { id: DelayedId(id), wait: Duration::from_micros(wait.cast_unsigned()) })
            }
            (None, None) => None,
        });
    }
    let same: Option<bool> = row.try_get(6)?;
    let first = first(row.try_get(4)?, row.try_get(5)?);
    Ok(first.map(|first| taken(first, same.unwrap_or_default())))
}

fn first(message: Option<i64>, delayed: Option<i64>) -> Option<FirstRow> {
    let message = message.map(|id| FirstRow::Message(MessageId(id)));
    message.or_else(|| delayed.map(|id| FirstRow::Delayed(DelayedId(id))))
}

fn taken(first: FirstRow, same: bool) -> ProducedRow {
    if same { ProducedRow::Duplicate(first) } else { ProducedRow::Conflict { first, payload: None } }
}
