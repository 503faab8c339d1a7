//! Whether a connection is what its client takes it for. Behind a pooler that gives its servers out for a
//! transaction, a client that believes in sessions would get other clients' answers, silently.

use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres, Row, SqlStr};
use tokio::sync::watch;
use uuid::Uuid;

use super::connection::{Checkout, Mode};
use super::{PostgresBackend, error};
use crate::error::{Error, Kind};

const DOING: &str = "looking at the connection to Postgres";

/// How often two connections compete for a server.
const ROUNDS: usize = 4;

/// The setting by which a client knows the sessions that it started itself. It travels with the start of a
/// connection, which a pooler keeps for itself.
pub(super) const MARK: &str = "sqlstreams.client";

/// A client's mark, and the news that a connection does not bear it.
#[derive(Clone)]
pub(super) struct Mark {
    value: Arc<str>,
    look: SqlStr,
    refusals: watch::Sender<()>,
}

/// What a connection leads to.
#[derive(Debug, PartialEq, Eq)]
struct Server {
    pid: i32,
    mark: Option<String>,
}

impl Mark {
    pub(super) fn new(look: SqlStr) -> Self {
        Self { value: Uuid::new_v4().simple().to_string().into(), look, refusals: watch::Sender::new(()) }
    }

    pub(super) fn value(&self) -> &str {
        &self.value
    }

    /// Changes when a connection was refused.
    pub(super) fn refusals(&self) -> watch::Receiver<()> {
        self.refusals.subscribe()
    }

    /// Whether the session behind `connection` was started by this client. One exchange, without a statement that
    /// a server would have to remember.
    pub(super) async fn is_on(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let server = server(&self.look, connection).await?;
        Ok(server.mark.as_deref() == Some(&*self.value))
    }

    /// As [`Mark::is_on`], for a new connection: an error tells those who wait for one.
    pub(super) async fn insist(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.is_on(connection).await? {
            return Ok(());
        }
        self.refusals.send_replace(());
        Err(sqlx::Error::Configuration(mismatch().into()))
    }
}

async fn server(look: &SqlStr, connection: &mut PgConnection) -> Result<Server, sqlx::Error> {
    let row = sqlx::raw_sql(look.clone()).fetch_one(connection).await?;
    Ok(Server { pid: row.try_get(0)?, mark: row.try_get(1)? })
}

/// The refusal of a direct client.
pub(super) fn mismatch() -> Error {
    Error::new(
        Kind::Configuration,
        "SQLS-0130",
        "a connection pooler stands between this client and Postgres, and would give it other clients' answers - \
         make the client with `ClientOptions::new().pooled(true)`, or connect to Postgres itself",
    )
}

/// The refusal of a pooled client.
pub(super) fn no_transactions() -> Error {
    Error::new(
        Kind::Configuration,
        "SQLS-0132",
        "the connection pooler changes servers inside a transaction - let it pool by transaction or by session",
    )
}

/// Looks once whether the client's mode fits.
pub(super) async fn check(backend: &PostgresBackend) -> Result<(), Error> {
    match backend.mode {
        Mode::Direct => compete(backend).await,
        Mode::Pooled => holds_for_a_transaction(backend).await,
    }
}

/// A pooler that passes the mark on to its servers shows itself when two connections compete for a server: one of
/// them finds itself on another one.
async fn compete(backend: &PostgresBackend) -> Result<(), Error> {
    let one = backend.acquire(&backend.engine, DOING).await?;
    let other = backend.acquire(&backend.engine, DOING).await?;
    let stayed = stay(backend, one, other).await.map_err(|err| error::map(DOING, err))?;
    if stayed { Ok(()) } else { Err(mismatch()) }
}

async fn stay(
    backend: &PostgresBackend,
    mut one: PoolConnection<Postgres>,
    mut other: PoolConnection<Postgres>,
) -> Result<bool, sqlx::Error> {
    let look = &backend.shared.connection_look;
    let first = server(look, &mut one).await?;
    let second = server(look, &mut other).await?;
    let mut stayed = first.pid != second.pid;
    for round in 0..ROUNDS {
        let (holder, visitor) = if round % 2 == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
        let (held, visited) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
        sqlx::raw_sql(backend.shared.transaction_begin.clone()).execute(&mut **holder).await?;
        stayed &= server(look, visitor).await? == *visited;
        stayed &= server(look, holder).await? == *held;
        sqlx::raw_sql(backend.shared.transaction_rollback.clone()).execute(&mut **holder).await?;
    }
    if !stayed {
        one.close_on_drop();
        other.close_on_drop();
    }
    Ok(stayed)
}

/// The statements of a transaction must meet one server, with the settings from its beginning.
async fn holds_for_a_transaction(backend: &PostgresBackend) -> Result<(), Error> {
    let mut connection = backend.transaction_on(&backend.engine, DOING).await?;
    let holds = statements_meet(backend, &mut connection).await;
    if connection.answer(DOING, holds).await? { Ok(()) } else { Err(no_transactions()) }
}

async fn statements_meet(backend: &PostgresBackend, connection: &mut Checkout) -> Result<bool, sqlx::Error> {
    let first = server(&backend.shared.connection_look, connection).await?;
    let row = backend.query(&backend.shared.connection_look).fetch_one(&mut **connection).await?;
    Ok(row.try_get::<i32, _>(0)? == first.pid && row.try_get::<bool, _>(2)?)
}
