//! The handle that appends payloads.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{Client, Inner};
use crate::backend::{FirstRow, ProduceWithParams, ProducedRow};
use crate::database::Database;
use crate::error::{Error, Kind};
use crate::identity::{DelayedId, MessageId, StreamId};
use crate::message::{Codec, NewMessage, ProduceItem, Stream};
use crate::produce::encode::{LARGEST_BATCH, encode};
use crate::produce::fold::Folding;
use crate::produce::grouping::{Grouping, PATIENCE, Plain, Target, WithOptions, no_answer};
use crate::produce::{First, ProduceOptions, Produced, payload};

/// Appends payloads of type `S`. Cheap to clone; clones share their inserts.
pub struct Producer<S: Stream, Db: Database> {
    client: Client<Db>,
    stream: StreamId,
    plain: Arc<Grouping<Plain>>,
    /// Messages with options go in groups of their own: one that waits for a key does not hold up plain ones.
    with_options: Arc<Grouping<WithOptions>>,
    batches: WithOptions,
    payload: PhantomData<fn(&S)>,
}

impl<S: Stream, Db: Database> Clone for Producer<S, Db> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            stream: self.stream,
            plain: Arc::clone(&self.plain),
            with_options: Arc::clone(&self.with_options),
            batches: self.batches.clone(),
            payload: PhantomData,
        }
    }
}

impl<S: Stream, Db: Database> Producer<S, Db> {
    pub(super) fn new(client: &Client<Db>, stream: StreamId) -> Self {
        let Inner { store, hub, .. } = &*client.inner;
        let target = Target { store: store.clone(), stream, version: S::VERSION, codec: Codec::Json.number() };
        let hub = Arc::clone(hub);
        let news = Arc::clone(&hub);
        let batches = WithOptions::new(target.clone(), move |rows| tell(&news, stream, rows));
        Self {
            client: client.clone(),
            stream,
            plain: Grouping::new(Plain { target, wake: Box::new(move || hub.produced(stream)) }),
            with_options: Grouping::new(batches.clone()),
            batches,
            payload: PhantomData,
        }
    }

    /// Appends `payload`; durable when it returns. Concurrent calls share inserts.
    ///
    /// Of a stream that declares an idempotency key, the answer for a payload that was produced before is the first
    /// one's id.
    ///
    /// # Errors
    /// A payload that can't be encoded or is too large (nothing was sent), or a database that can't be
    /// reached: [`Error::outcome_known`] tells whether the message may be stored all the same. For a declared
    /// idempotency key, those of [`Producer::produce_with`].
    ///
    /// # Cancellation
    /// A dropped call's message may or may not be appended.
    pub async fn produce(&self, payload: &S) -> Result<MessageId, Error> {
        if S::IDEMPOTENCY_KEY.is_none() {
            return self.plain.produce(encode(payload, None)?).await;
        }
        in_the_stream(self.produce_with(payload, ProduceOptions::new()).await?)
    }

    /// As [`Producer::produce`], with options: headers, an idempotency key, a later time. Durable when it returns.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use sqlstreams_runtime::{Database, Error, Produced, Producer, ProduceOptions, Stream};
    /// # async fn remind<S: Stream, Db: Database>(reminders: Producer<S, Db>, reminder: S) -> Result<(), Error> {
    /// let options = ProduceOptions::new().idempotency_key("request 17").deliver_after(Duration::from_secs(3600));
    /// if let Produced::Delayed(id) = reminders.produce_with(&reminder, options).await? {
    ///     let in_time = reminders.cancel(id).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Producer::produce`]; and `SQLS-0220` when another payload was produced with the same idempotency key: it
    /// names the first place where the two differ, and no value. With a key, an unchanged call can be made again after
    /// any error: it stores nothing twice.
    ///
    /// # Cancellation
    /// A dropped call's message may or may not be appended.
    pub async fn produce_with(&self, payload: &S, options: ProduceOptions) -> Result<Produced, Error> {
        let item = options.apply(payload)?;
        if ProduceOptions::is_plain(&item) {
            return self.plain.produce(item.message).await.map(Produced::Message);
        }
        produced::<S>(self.with_options.produce(item).await?, || encode(payload, None))
    }

    /// Appends all of `payloads` or none; the ids come in their order. Durable when it returns.
    ///
    /// Of a stream that declares an idempotency key, what was produced before is answered with the first one's id.
    ///
    /// # Errors
    /// As [`Producer::produce`]; an error about a payload names its place in the batch. After a conflict of a declared
    /// idempotency key the others are stored.
    ///
    /// # Cancellation
    /// A dropped call's messages are all appended, or none is.
    pub async fn produce_batch<'a>(&self, payloads: impl IntoIterator<Item = &'a S>) -> Result<Vec<MessageId>, Error> {
        if S::IDEMPOTENCY_KEY.is_some() {
            let items = payloads.into_iter().map(|payload| (payload, ProduceOptions::new()));
            return all_in_the_stream(self.produce_batch_with(items).await?);
        }
        let messages = encode_all(payloads)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let codec = Codec::Json.number();
        let ids = self.client.inner.store.message_produce(self.stream, S::VERSION, codec, &messages).await?;
        self.client.inner.hub.produced(self.stream);
        Ok(ids)
    }

    /// As [`Producer::produce_batch`], each payload with its options. Of those that are new, all are stored or none; each
    /// has its own answer, in their order: a conflict of one does not keep the others from being stored.
    ///
    /// # Errors
    /// As [`Producer::produce_batch`].
    ///
    /// # Cancellation
    /// As [`Producer::produce_batch`].
    pub async fn produce_batch_with<'a>(
        &self,
        payloads: impl IntoIterator<Item = (&'a S, ProduceOptions)>,
    ) -> Result<Vec<Result<Produced, Error>>, Error> {
        let items = apply_all(payloads)?;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.batches.store(&items, PATIENCE).await?;
        Ok(all_produced::<S>(rows, &items))
    }

    /// Appends `payload` in the caller's transaction: it becomes visible when that commits, together with the
    /// caller's own rows, and never if it rolls back. On SQLite begin the transaction with
    /// `begin_with("begin immediate")`: a deferred one fails when it turns to writing.
    ///
    /// # Errors
    /// As [`Producer::produce`]; roll back after one.
    ///
    /// # Cancellation
    /// Roll the transaction back after a dropped call.
    pub async fn produce_in(&self, tx: &mut sqlx::Transaction<'_, Db>, payload: &S) -> Result<MessageId, Error> {
        if S::IDEMPOTENCY_KEY.is_some() {
            return in_the_stream(self.produce_in_with(tx, payload, ProduceOptions::new()).await?);
        }
        let ids = self.append_in(tx, &[encode(payload, None)?]).await?;
        ids.first().copied().ok_or_else(no_answer)
    }

    /// As [`Producer::produce_in`], with options. The idempotency key is held until the transaction ends: another call
    /// with the same key waits for that.
    ///
    /// # Errors
    /// As [`Producer::produce_with`]; roll back after one, `SQLS-0220` aside, which stored nothing. Above READ COMMITTED a
    /// key that another transaction stored meanwhile is a [`Kind::Conflict`]: run the transaction again. So it is when
    /// transactions with the same keys in different orders wait for each other.
    ///
    /// # Cancellation
    /// As [`Producer::produce_in`].
    pub async fn produce_in_with(
        &self,
        tx: &mut sqlx::Transaction<'_, Db>,
        payload: &S,
        options: ProduceOptions,
    ) -> Result<Produced, Error> {
        let items = [options.apply(payload)?];
        let mut rows = self.store_in(tx, &items).await?;
        produced::<S>(rows.pop().ok_or_else(no_answer)?, || encode(payload, None))
    }

    /// As [`Producer::produce_in`], for several payloads; the ids come in their order.
    ///
    /// # Errors
    /// As [`Producer::produce_in`].
    pub async fn produce_batch_in<'a>(
        &self,
        tx: &mut sqlx::Transaction<'_, Db>,
        payloads: impl IntoIterator<Item = &'a S>,
    ) -> Result<Vec<MessageId>, Error> {
        if S::IDEMPOTENCY_KEY.is_some() {
            let items = apply_all(payloads.into_iter().map(|payload| (payload, ProduceOptions::new())))?;
            return all_in_the_stream(all_produced::<S>(self.store_in(tx, &items).await?, &items));
        }
        let messages = encode_all(payloads)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        self.append_in(tx, &messages).await
    }

    /// As [`Producer::produce_in_with`], for several payloads; each has its own answer, in their order.
    ///
    /// # Errors
    /// As [`Producer::produce_in_with`].
    pub async fn produce_batch_in_with<'a>(
        &self,
        tx: &mut sqlx::Transaction<'_, Db>,
        payloads: impl IntoIterator<Item = (&'a S, ProduceOptions)>,
    ) -> Result<Vec<Result<Produced, Error>>, Error> {
        let items = apply_all(payloads)?;
        Ok(all_produced::<S>(self.store_in(tx, &items).await?, &items))
    }

    /// Takes a delayed message back, together with its idempotency key, which can be used again. `true` when it was in
    /// time; `false` when the message has entered the stream, or was cancelled before. Durable when it returns.
    ///
    /// # Errors
    /// A database that can't be reached; cancelling again tells nothing then.
    pub async fn cancel(&self, id: DelayedId) -> Result<bool, Error> {
        self.client.inner.store.delayed_cancel(self.stream, id).await
    }

    /// As [`Producer::cancel`], in the caller's transaction.
    ///
    /// # Errors
    /// As [`Producer::cancel`]; roll back after one.
    pub async fn cancel_in(&self, tx: &mut sqlx::Transaction<'_, Db>, id: DelayedId) -> Result<bool, Error> {
        Db::cancel_in(&self.client.inner.backend, tx, self.stream, id).await
    }

    async fn append_in(
        &self,
        tx: &mut sqlx::Transaction<'_, Db>,
        messages: &[NewMessage],
    ) -> Result<Vec<MessageId>, Error> {
        let inner = &self.client.inner;
        let ids = Db::produce_in(&inner.backend, tx, self.stream, S::VERSION, Codec::Json.number(), messages).await?;
        // Consumers that look now see that an id was drawn, and look again until the transaction has ended.
        inner.hub.produced(self.stream);
        Ok(ids)
    }

    async fn store_in(
        &self,
        tx: &mut sqlx::Transaction<'_, Db>,
        items: &[ProduceItem],
    ) -> Result<Vec<ProducedRow>, Error> {
        let inner = &self.client.inner;
        let mut folding = Folding::new(items);
        while let Some(messages) = folding.next() {
            let params = ProduceWithParams {
                stream: self.stream,
                version: S::VERSION,
                codec: Codec::Json.number(),
                messages: &messages,
                patience: None,
                now: None,
            };
            folding.answer(Db::produce_with_in(&inner.backend, tx, &params).await?);
        }
        let rows = folding.finish();
        tell(&inner.hub, self.stream, &rows);
        Ok(rows)
    }
}

/// Wakes whoever has to do with what became of messages.
fn tell(hub: &crate::hub::Hub, stream: StreamId, rows: &[ProducedRow]) {
    if rows.iter().any(|row| matches!(row, ProducedRow::Message(_))) {
        hub.produced(stream);
    }
    let waits =
        rows.iter().filter_map(|row| if let ProducedRow::Delayed { wait, .. } = row { Some(*wait) } else { None });
    if let Some(shortest) = waits.min() {
        hub.delayed(stream, shortest);
    }
}

fn produced<S: Stream>(
    row: ProducedRow,
    second: impl FnOnce() -> Result<NewMessage, Error>,
) -> Result<Produced, Error> {
    match row {
        ProducedRow::Message(id) => Ok(Produced::Message(id)),
        ProducedRow::Delayed { id, .. } => Ok(Produced::Delayed(id)),
        ProducedRow::Duplicate(first) => Ok(Produced::Duplicate(shown(first))),
        ProducedRow::Conflict { first, payload } => {
            let second = second()?;
            let path = payload.and_then(|first| payload::first_difference::<S>(&first, second.payload.as_bytes()));
            Err(conflict::<S>(shown(first), path))
        }
    }
}

fn shown(first: FirstRow) -> First {
    match first {
        FirstRow::Message(id) => First::Message(id),
        FirstRow::Delayed(id) => First::Delayed(id),
    }
}

fn conflict<S: Stream>(first: First, path: Option<String>) -> Error {
    let first = match first {
        First::Message(id) => format!("message {id}"),
        First::Delayed(id) => format!("delayed message {id}"),
    };
    let path = path.map(|path| format!("; they differ first at `{path}`")).unwrap_or_default();
    Error::new(
        Kind::Message,
        "SQLS-0220",
        format!(
            "{first} of stream \"{}\" was produced with the same idempotency key and another payload{path} - give each \
             message a key of its own",
            S::NAME
        ),
    )
}

fn all_produced<S: Stream>(rows: Vec<ProducedRow>, items: &[ProduceItem]) -> Vec<Result<Produced, Error>> {
    let each = rows.into_iter().zip(items).enumerate();
    each.map(|(place, (row, item))| {
        produced::<S>(row, || Ok(item.message.clone())).map_err(|err| err.at(format!("payload {place} of the batch")))
    })
    .collect()
}

fn in_the_stream(produced: Produced) -> Result<MessageId, Error> {
    produced.message_id().ok_or_else(|| {
        Error::new(
            Kind::Message,
            "SQLS-0223",
            "the first message with this idempotency key waits for its time, and has no id in the stream yet - use \
             `produce_with`, which answers the id that it waits by",
        )
    })
}

fn all_in_the_stream(produced: Vec<Result<Produced, Error>>) -> Result<Vec<MessageId>, Error> {
    let ids: Result<Vec<_>, _> = produced.into_iter().map(|produced| in_the_stream(produced?)).collect();
    ids.map_err(|err| err.at("the rest of the batch is stored".to_owned()))
}

fn apply_all<'a, S: Stream>(
    payloads: impl IntoIterator<Item = (&'a S, ProduceOptions)>,
) -> Result<Vec<ProduceItem>, Error> {
    let mut items = Vec::new();
    let mut bytes = 0;
    for (place, (payload, options)) in payloads.into_iter().enumerate() {
        let item = options.apply(payload).map_err(|err| err.at(format!("payload {place} of the batch")))?;
        bytes += item.message.size();
        items.push(item);
    }
    check_batch(bytes)?;
    Ok(items)
}

fn encode_all<'a, S: Stream>(payloads: impl IntoIterator<Item = &'a S>) -> Result<Vec<NewMessage>, Error> {
    let mut messages = Vec::new();
    let mut bytes = 0;
    for (place, payload) in payloads.into_iter().enumerate() {
        let message = encode(payload, None).map_err(|err| err.at(format!("payload {place} of the batch")))?;
        bytes += message.size();
        messages.push(message);
    }
    check_batch(bytes)?;
    Ok(messages)
}

fn check_batch(bytes: usize) -> Result<(), Error> {
    if bytes <= LARGEST_BATCH {
        return Ok(());
    }
    Err(Error::new(
        Kind::Message,
        "SQLS-0210",
        format!("the batch has {bytes} bytes; one insert carries at most {LARGEST_BATCH} - produce it in parts"),
    ))
}
