//! The databases that a client can be of. The type is visible where a user could go wrong: a transaction
//! of another database does not compile.

use std::future::Future;
use std::sync::Arc;

use crate::backend::{Backend, ProduceWithParams, ProducedRow};
use crate::error::Error;
use crate::identity::{DelayedId, MessageId, StreamId};
use crate::message::NewMessage;
use crate::migrate::Migration;
use crate::role::RoleKind;

mod sealed {
    pub trait Sealed {}
    #[cfg(feature = "postgres")]
    impl Sealed for sqlx::Postgres {}
    #[cfg(feature = "sqlite")]
    impl Sealed for sqlx::Sqlite {}
}

/// A database of sqlx that an installation can live in: `Postgres`, and `Sqlite`, by feature.
pub trait Database: sealed::Sealed + sqlx::Database {
    /// The engine's port on this database.
    #[doc(hidden)]
    type Backend: Backend;

    /// Opens the engine's port on the database of `pool`; `pooled` when a pooler stands in between.
    #[doc(hidden)]
    fn backend(pool: sqlx::Pool<Self>, namespace: &str, pooled: bool) -> Result<Self::Backend, Error>;

    /// Opens a pool with the settings that a client wants.
    #[doc(hidden)]
    fn pool(url: &str, pooled: bool) -> impl Future<Output = Result<sqlx::Pool<Self>, Error>> + Send;

    /// Looks whether `pooled` was right.
    #[doc(hidden)]
    fn probe(backend: &Arc<Self::Backend>) -> impl Future<Output = Result<(), Error>> + Send;

    /// The schema, or the tables' prefix, that an installation has when none is named.
    #[doc(hidden)]
    const NAMESPACE: &'static str;

    /// This build's migrations and their filled texts.
    #[doc(hidden)]
    fn migrations(namespace: &str) -> Vec<(Migration, String)>;

    /// Appends messages in the caller's transaction.
    #[doc(hidden)]
    fn produce_in(
        backend: &Arc<Self::Backend>,
        tx: &mut sqlx::Transaction<'_, Self>,
        stream: StreamId,
        version: u32,
        codec: i16,
        messages: &[NewMessage],
    ) -> impl Future<Output = Result<Vec<MessageId>, Error>> + Send;

    /// Appends messages with options in the caller's transaction.
    #[doc(hidden)]
    fn produce_with_in(
        backend: &Arc<Self::Backend>,
        tx: &mut sqlx::Transaction<'_, Self>,
        params: &ProduceWithParams<'_>,
    ) -> impl Future<Output = Result<Vec<ProducedRow>, Error>> + Send;

    /// Takes a delayed message back in the caller's transaction.
    #[doc(hidden)]
    fn cancel_in(
        backend: &Arc<Self::Backend>,
        tx: &mut sqlx::Transaction<'_, Self>,
        stream: StreamId,
        id: DelayedId,
    ) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// A database whose users have roles with rights: `Postgres`.
pub trait Roles: Database {
    /// The statement that grants `role` what a process of `kind` needs.
    #[doc(hidden)]
    fn grants(namespace: &str, kind: RoleKind, role: &str) -> String;
}

#[cfg(feature = "postgres")]
impl Roles for sqlx::Postgres {
    fn grants(namespace: &str, kind: RoleKind, role: &str) -> String {
        crate::backend::postgres::grants(namespace, kind, role)
    }
}

#[cfg(feature = "postgres")]
impl Database for sqlx::Postgres {
    type Backend = crate::backend::postgres::PostgresBackend;
    const NAMESPACE: &'static str = "sqlstreams";

    fn backend(pool: sqlx::PgPool, namespace: &str, pooled: bool) -> Result<Self::Backend, Error> {
        if pooled { Self::Backend::pooled(pool, namespace) } else { Self::Backend::new(pool, namespace) }
    }

    async fn pool(url: &str, pooled: bool) -> Result<sqlx::PgPool, Error> {
        crate::backend::postgres::connect(url, pooled).await
    }

    async fn probe(backend: &Arc<Self::Backend>) -> Result<(), Error> {
        backend.probe().await
    }

    fn migrations(namespace: &str) -> Vec<(Migration, String)> {
        crate::backend::postgres::migrations(namespace)
    }

    async fn produce_in(
        backend: &Arc<Self::Backend>,
        tx: &mut sqlx::Transaction<'_, Self>,
        stream: StreamId,
        version: u32,
        codec: i16,
        messages: &[NewMessage],
    ) -> Result<Vec<MessageId>, Error> {
        backend.produce_in(tx, stream, version, codec, messages).await
    }

    async fn produce_with_in(
        backend: &Arc<Self::Backend>,
        tx: &mut sqlx::Transaction<'_, Self>,
        params: &ProduceWithParams<'_>,
    ) -> Result<Vec<ProducedRow>, Error> {
        backend.produce_with_in(tx, params).await
    }

    async fn cancel_in(
        backend: &Arc<Self::Backend>,
        tx: &mut sqlx::Transaction<'_, Self>,
        stream: StreamId,
        id: DelayedId,
    ) -> Result<bool, Error> {
        backend.cancel_in(tx, stream, id).await
    }
}

#[cfg(feature = "sqlite")]
impl Database for sqlx::Sqlite {
    type Backend = crate::backend::sqlite::SqliteBackend;
    const NAMESPACE: &'static str = "sqlstreams_";

    fn backend(pool: sqlx::SqlitePool, namespace: &str, pooled: bool) -> Result<Self::Backend, Error> {
        not_pooled(pooled)?;
        Self::Backend::open(pool.connect_options().as_ref().clone(), namespace)
    }

    async fn pool(url: &str, pooled: bool) -> Result<sqlx::SqlitePool, Error> {
        not_pooled(pooled)?;
        crate::backend::sqlite::connect(url).await
    }

    async fn probe(_: &Arc<Self::Backend>) -> Result<(), Error> {
        Ok(())
    }

    fn migrations(namespace: &str) -> Vec<(Migration, String)> {
        crate::backend::sqlite::migrations(namespace)
    }

    async fn produce_in(
        backend: &Arc<Self::Backend>,
        tx: &mut sqlx::Transaction<'_, Self>,
        stream: StreamId,
        version: u32,
        codec: i16,
        messages: &[NewMessage],
    ) -> Result<Vec<MessageId>, Error> {
        backend.produce_in(tx, stream, version, codec, messages).await
    }

    async fn produce_with_in(
        backend: &Arc<Self::Backend>,
        tx: &mut sqlx::Transaction<'_, Self>,
        params: &ProduceWithParams<'_>,
    ) -> Result<Vec<ProducedRow>, Error> {
        backend.produce_with_in(tx, params).await
    }

    async fn cancel_in(
        backend: &Arc<Self::Backend>,
        tx: &mut sqlx::Transaction<'_, Self>,
        stream: StreamId,
        id: DelayedId,
    ) -> Result<bool, Error> {
        backend.cancel_in(tx, stream, id).await
    }
}

#[cfg(feature = "sqlite")]
fn not_pooled(pooled: bool) -> Result<(), Error> {
    if !pooled {
        return Ok(());
    }
    Err(Error::new(
        crate::error::Kind::Configuration,
        "SQLS-0133",
        "no connection pooler stands before a SQLite file - leave `pooled` out of the client's options",
    ))
}
