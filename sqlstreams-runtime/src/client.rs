//! Handles: a client, and what it gives out.

use std::sync::Arc;

use crate::backend::{AttemptRow, LaneRow, PositionRow, WorkerStateRow};
use crate::consume::{Consumer, Observations, Stall, Stalls, stalls};
use crate::database::{Database, Roles};
use crate::dead_letters::DeadLetters;
use crate::error::{Error, Kind};
use crate::group::Group;
use crate::hub::Hub;
use crate::identity::{MessageId, StreamId, WorkerId};
use crate::message::Stream;
use crate::migrate::Migration;
use crate::register;
use crate::replay::Replay;
use crate::role::RoleKind;
use crate::store::Store;
use crate::worker::{self, Manager};

mod producer;

pub use producer::Producer;

/// How a client uses its database.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example() -> Result<(), sqlstreams_runtime::Error> {
/// use sqlstreams_runtime::{Client, ClientOptions};
///
/// let behind_pgbouncer = ClientOptions::new().pooled(true);
/// let client = Client::<sqlx::Postgres>::connect_with("postgres://app@pgbouncer:6432/shop", behind_pgbouncer).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    namespace: Option<String>,
    pooled: bool,
}

impl ClientOptions {
    /// Those of [`Client::new`].
    pub fn new() -> Self {
        Self::default()
    }

    /// The installation's name, as in [`Client::with_namespace`].
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Whether a pooler that gives its servers out for a transaction, such as PgBouncer with
    /// `pool_mode = transaction`, stands between the client and Postgres; no unless said. Every statement is then
    /// within a transaction, without a name on the server, and new messages of other processes are found by
    /// looking, up to a second later. Also right, if slower, without a pooler. A client without this option refuses to
    /// work through a pooler, since it would get other clients' answers.
    pub fn pooled(mut self, pooled: bool) -> Self {
        self.pooled = pooled;
        self
    }
}

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
        Self::connect_with(url, ClientOptions::new()).await
    }

    /// As [`Client::connect`], with options.
    ///
    /// # Errors
    /// As [`Client::connect`], and options that don't fit what is found at `url`.
    pub async fn connect_with(url: &str, options: ClientOptions) -> Result<Self, Error> {
        let client = Self::with_options(Db::pool(url, options.pooled).await?, options)?;
        Db::probe(&client.inner.backend).await?;
        Ok(client)
    }

    /// A client that produces through `pool`. The engine opens a few connections of its own, with the pool's
    /// options, since renewals must not wait behind the handlers that they keep alive. Must be called inside
    /// a tokio runtime.
    ///
    /// # Errors
    /// A database that can't be used, such as SQLite in memory.
    pub fn new(pool: sqlx::Pool<Db>) -> Result<Self, Error> {
        Self::with_options(pool, ClientOptions::new())
    }

    /// As [`Client::new`], for an installation of another name: the Postgres schema (`sqlstreams` unless
    /// named), or the prefix of the tables on SQLite (`sqlstreams_`). Installations share nothing.
    ///
    /// # Errors
    /// A name that is not `[a-z_][a-z0-9_]*`.
    pub fn with_namespace(pool: sqlx::Pool<Db>, namespace: &str) -> Result<Self, Error> {
        Self::with_options(pool, ClientOptions::new().namespace(namespace))
    }

    /// As [`Client::new`], with options. Whether they fit what the pool connects to is found out, and an error if
    /// not, by the first call that uses the database.
    ///
    /// # Errors
    /// As [`Client::new`], and options that can't be used.
    pub fn with_options(pool: sqlx::Pool<Db>, options: ClientOptions) -> Result<Self, Error> {
        let namespace = options.namespace.as_deref().unwrap_or(Db::NAMESPACE);
        let backend = Arc::new(Db::backend(pool.clone(), namespace, options.pooled)?);
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
        Ok(Producer::new(self, stream))
    }

    /// A consumer without groups yet.
    pub fn consumer(&self) -> Consumer {
        let inner = &self.inner;
        let (hub, stalls) = (Arc::clone(&inner.hub), Arc::clone(&inner.stalls));
        Consumer::new(inner.store.clone(), hub, stalls, Arc::clone(&inner.observations))
    }

    /// What runs the installation's maintenance: moves delayed messages into their streams when they are due, removes
    /// expired idempotency keys, advances stored positions. Every consumer does so while it runs; a manager is for
    /// deployments that only produce.
    pub fn manager(&self) -> Manager {
        Manager::new(self.inner.store.clone(), Arc::clone(&self.inner.hub))
    }

    /// The maintenance tasks of the installation, and how many processes run each.
    ///
    /// # Errors
    /// A missing installation, or a database that can't be reached.
    pub async fn workers(&self) -> Result<Vec<WorkerStateRow>, Error> {
        worker::list(&self.inner.store).await
    }

    /// Suspends a maintenance task: nobody runs it until it is resumed, whatever restarts meanwhile. Whoever runs it
    /// notices within some seconds. False when there is no such task.
    ///
    /// # Errors
    /// A database that can't be reached.
    pub async fn suspend_worker(&self, worker: WorkerId) -> Result<bool, Error> {
        self.inner.store.worker_target(worker, 0).await
    }

    /// Lets one process run a maintenance task again. False when there is no such task.
    ///
    /// # Errors
    /// A database that can't be reached.
    pub async fn resume_worker(&self, worker: WorkerId) -> Result<bool, Error> {
        self.inner.store.worker_target(worker, 1).await
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

    /// At most `limit` keys of the ordered group `G` that are held up, each with the message that holds it and why, in
    /// the order of the keys' bytes after `after`.
    ///
    /// # Errors
    /// As registration.
    pub async fn blocked_keys<G: Group>(&self, after: Option<&str>, limit: u32) -> Result<Vec<LaneRow>, Error> {
        let (stream, group) = self.group::<G>().await?;
        self.inner.store.lane_list(stream, group, after, i64::from(limit)).await
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
