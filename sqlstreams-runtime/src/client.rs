//! Handles: a client, and what it gives out.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::backend::{AttemptRow, PositionRow};
use crate::consume::{Consumer, Observations, Stall, Stalls, stalls};
use crate::database::{Database, Roles};
use crate::dead_letters::DeadLetters;
use crate::error::{Error, Kind};
use crate::group::Group;
use crate::hub::Hub;
use crate::identity::{MessageId, StreamId};
use crate::message::{Codec, Headers, NewMessage, Stream};
use crate::migrate::Migration;
use crate::produce::encode::{LARGEST_BATCH, encode};
use crate::produce::grouping::Grouping;
use crate::register;
use crate::replay::Replay;
use crate::role::RoleKind;
use crate::store::Store;

/// One installation in one database. Cheap to clone; a clone is the same client.
pub struct Client<Db: Database> {
    inner: Arc<Inner<Db>>,
}

struct Inner<Db: Database> {
    pool: sqlx::Pool<Db>,
    backend: Arc<Db::Backend>,
    store: Store,
    hub: Arc<Hub>,
    stalls: Stalls,
    observations: Arc<Observations>,
    namespace: String,
}

impl<Db: Database> Clone for Client<Db> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<Db: Database> Client<Db> {
    /// Connects to the database at `url`, with a pool of the client's own for produces.
    ///
    /// # Errors
    /// A url of another database, or one that can't be reached.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::new(Db::pool(url).await?)
    }

    /// A client that produces through `pool`. The engine opens a few connections of its own, with the pool's
    /// options, since renewals must not wait behind the handlers that they keep alive. Must be called inside
    /// a tokio runtime.
    ///
    /// # Errors
    /// A database that can't be used, such as SQLite in memory.
    pub fn new(pool: sqlx::Pool<Db>) -> Result<Self, Error> {
        Self::with_namespace(pool, Db::NAMESPACE)
    }

    /// As [`Client::new`], for an installation of another name: the Postgres schema (`sqlstreams` unless
    /// named), or the prefix of the tables on SQLite (`sqlstreams_`). Installations share nothing.
    ///
    /// # Errors
    /// A name that is not `[a-z_][a-z0-9_]*`.
    pub fn with_namespace(pool: sqlx::Pool<Db>, namespace: &str) -> Result<Self, Error> {
        let backend = Arc::new(Db::backend(pool.clone(), namespace)?);
        let store = Store::new(backend.clone());
        let inner = Inner {
            pool,
            backend,
            hub: Hub::new(store.clone()),
            store,
            stalls: Stalls::default(),
            observations: Arc::default(),
            namespace: namespace.to_owned(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The pool that produces go through, for the caller's own statements and transactions.
    pub fn pool(&self) -> &sqlx::Pool<Db> {
        &self.inner.pool
    }

    /// Brings the installation to this build's version: creates it, or applies the migrations that it lacks.
    /// Needs the owner's rights. Safe to run twice and from several processes at once.
    ///
    /// # Errors
    /// A database that says it needs a newer build, or a role without the rights.
    pub async fn migrate(&self) -> Result<(), Error> {
        self.inner.store.migration_apply().await
    }

    /// This build's migrations with their SQL, for people who apply them by hand or read them first.
    pub fn migrations(&self) -> Vec<(Migration, String)> {
        Db::migrations(&self.inner.namespace)
    }

    /// A producer for `S`. Registers the stream and this version of its payload, or joins what is stored.
    ///
    /// # Errors
    /// A version that is stored with another shape, with the difference; a missing installation.
    pub async fn producer<S: Stream>(&self) -> Result<Producer<S, Db>, Error> {
        self.producer_with(register::PARTITION_SIZE).await
    }

    /// As [`Client::producer`]; a new stream gets `partition_size` ids a partition (1,000,000 otherwise). The
    /// size is fixed when the stream is created. It has no meaning on SQLite.
    ///
    /// # Errors
    /// As [`Client::producer`], and a size below 2.
    pub async fn producer_with<S: Stream>(&self, partition_size: i64) -> Result<Producer<S, Db>, Error> {
        if partition_size < 2 {
            return Err(Error::new(
                Kind::Declaration,
                "SQLS-0314",
                format!("a partition of {partition_size} ids is too small - at least 2"),
            ));
        }
        self.inner.store.migration_check().await?;
        let stream = register::stream::<S>(&self.inner.store, partition_size).await?;
        let hub = Arc::clone(&self.inner.hub);
        let grouping = Grouping::new(self.inner.store.clone(), stream, S::VERSION, Codec::Json.number(), move || {
            hub.produced(stream)
        });
        Ok(Producer { client: self.clone(), stream, grouping, payload: PhantomData })
    }

    /// A consumer without groups yet.
    pub fn consumer(&self) -> Consumer {
        let inner = &self.inner;
        let (hub, stalls) = (Arc::clone(&inner.hub), Arc::clone(&inner.stalls));
        Consumer::new(inner.store.clone(), hub, stalls, Arc::clone(&inner.observations))
    }

    /// What keeps this client's running consumers from messages that are already numbered: open
    /// transactions that produced, by name. Empty when nothing stalls for longer than a second.
    pub fn stalls(&self) -> Vec<Stall> {
        stalls(&self.inner.stalls)
    }

    /// Where group `G` stands, and how many of its messages are in trouble. Registers the group if it is new.
    ///
    /// # Errors
    /// As registration.
    pub async fn position<G: Group>(&self) -> Result<PositionRow, Error> {
        let (stream, group) = self.group::<G>().await?;
        self.inner.store.cursor_position(stream, group).await
    }

    /// The dead letters of group `G`: to list, look into, redrive and discard. Registers the group if it is new.
    ///
    /// # Errors
    /// As registration.
    pub async fn dead_letters<G: Group>(&self) -> Result<DeadLetters<G>, Error> {
        let (stream, group) = self.group::<G>().await?;
        Ok(DeadLetters::new(self.inner.store.clone(), Arc::clone(&self.inner.stalls), stream, group))
    }

    /// Moves group `G` back, so that it handles messages again, or forward. Registers the group if it is new.
    ///
    /// # Errors
    /// As registration.
    pub async fn replay<G: Group>(&self) -> Result<Replay<G>, Error> {
        let (stream, group) = self.group::<G>().await?;
        Ok(Replay::new(self.inner.store.clone(), Arc::clone(&self.inner.hub), stream, group))
    }

    /// The newest `limit` attempts of group `G` to handle a message, the newest first, as far as its delivery log
    /// keeps them: `#[group(delivery_log = "failures")]` or `"all"`. A run whose process was lost leaves no row, and a
    /// message that was handled in a range whose process was lost later may have none.
    ///
    /// # Errors
    /// As registration.
    pub async fn attempts<G: Group>(&self, message: MessageId, limit: u32) -> Result<Vec<AttemptRow>, Error> {
        let (stream, group) = self.group::<G>().await?;
        self.inner.store.delivery_list(stream, group, message, i64::from(limit)).await
    }

    async fn group<G: Group>(&self) -> Result<(StreamId, crate::identity::GroupId), Error> {
        let stream = register::stream::<G::Stream>(&self.inner.store, register::PARTITION_SIZE).await?;
        let group = register::group(&self.inner.store, stream, G::NAME, &G::CONFIG, G::CONFIG.start, None).await?;
        Ok((stream, group.id))
    }

    /// Closes the connections that the engine opened. The caller's pool stays open.
    pub async fn close(&self) {
        self.inner.store.close().await;
    }
}

impl<Db: Roles> Client<Db> {
    /// The SQL that gives the database role `role` what a process of `kind` needs: on what is stored, and on the
    /// streams that are registered later. For the installation's owner to read and to run, once the role and
    /// the installation exist. Safe to run twice; a role may be granted several kinds. Nothing is sent here.
    ///
    /// ```no_run
    /// # use sqlstreams_runtime::{Client, Error, RoleKind};
    /// # async fn f() -> Result<(), Error> {
    /// let client = Client::<sqlx::Postgres>::connect("postgres://owner@localhost/app").await?;
    /// println!("{}", client.grants(RoleKind::Produce, "web"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn grants(&self, kind: RoleKind, role: &str) -> String {
        Db::grants(&self.inner.namespace, kind, role)
    }
}

/// Appends payloads of type `S`. Cheap to clone; clones share their inserts.
pub struct Producer<S: Stream, Db: Database> {
    client: Client<Db>,
    stream: StreamId,
    grouping: Arc<Grouping>,
    payload: PhantomData<fn(&S)>,
}

impl<S: Stream, Db: Database> Clone for Producer<S, Db> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            stream: self.stream,
            grouping: Arc::clone(&self.grouping),
            payload: PhantomData,
        }
    }
}

impl<S: Stream, Db: Database> Producer<S, Db> {
    /// Appends `payload`; durable when it returns. Concurrent calls share inserts.
    ///
    /// # Errors
    /// A payload that can't be encoded or is too large (nothing was sent), or a database that can't be
    /// reached: [`Error::outcome_known`] tells whether the message may be stored all the same.
    ///
    /// # Cancellation
    /// A dropped call's message may or may not be appended.
    pub async fn produce(&self, payload: &S) -> Result<MessageId, Error> {
        self.grouping.produce(encode(payload, None)?).await
    }

    /// As [`Producer::produce`], with headers.
    ///
    /// # Errors
    /// As [`Producer::produce`].
    ///
    /// # Cancellation
    /// As [`Producer::produce`].
    pub async fn produce_with(&self, payload: &S, headers: &Headers) -> Result<MessageId, Error> {
        self.grouping.produce(encode(payload, Some(headers))?).await
    }

    /// Appends all of `payloads` or none; the ids come in their order. Durable when it returns.
    ///
    /// # Errors
    /// As [`Producer::produce`]; an error about a payload names its place in the batch.
    ///
    /// # Cancellation
    /// A dropped call's messages are all appended, or none is.
    pub async fn produce_batch<'a>(&self, payloads: impl IntoIterator<Item = &'a S>) -> Result<Vec<MessageId>, Error> {
        let messages = encode_all(payloads)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let codec = Codec::Json.number();
        let ids = self.client.inner.store.message_produce(self.stream, S::VERSION, codec, &messages).await?;
        self.client.inner.hub.produced(self.stream);
        Ok(ids)
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
        let ids = self.append_in(tx, &[encode(payload, None)?]).await?;
        ids.first().copied().ok_or_else(|| Error::new(Kind::Database, "SQLS-0197", "the insert answered no id"))
    }

    /// As [`Producer::produce_in`], with headers.
    ///
    /// # Errors
    /// As [`Producer::produce_in`].
    pub async fn produce_in_with(
        &self,
        tx: &mut sqlx::Transaction<'_, Db>,
        payload: &S,
        headers: &Headers,
    ) -> Result<MessageId, Error> {
        let ids = self.append_in(tx, &[encode(payload, Some(headers))?]).await?;
        ids.first().copied().ok_or_else(|| Error::new(Kind::Database, "SQLS-0197", "the insert answered no id"))
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
        let messages = encode_all(payloads)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        self.append_in(tx, &messages).await
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
}

fn encode_all<'a, S: Stream>(payloads: impl IntoIterator<Item = &'a S>) -> Result<Vec<NewMessage>, Error> {
    let mut messages = Vec::new();
    let mut bytes = 0;
    for (place, payload) in payloads.into_iter().enumerate() {
        let message = encode(payload, None).map_err(|err| err.at(format!("payload {place} of the batch")))?;
        bytes += message.size();
        messages.push(message);
    }
    if bytes > LARGEST_BATCH {
        return Err(Error::new(
            Kind::Message,
            "SQLS-0210",
            format!("the batch has {bytes} bytes; one insert carries at most {LARGEST_BATCH} - produce it in parts"),
        ));
    }
    Ok(messages)
}
