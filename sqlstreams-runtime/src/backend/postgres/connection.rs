//! Connections while they are used.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres, SqlStr};

use super::error;
use super::statements::SharedStatements;
use crate::error::Error;

/// What stands between a client and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nothing that shares servers: a connection is a session, with settings and named statements.
    Direct,
    /// A pooler that gives out its servers for a transaction: nothing of ours outlives one.
    Pooled,
}

/// What begins a transaction, each one exchange.
#[derive(Clone, Debug)]
pub(super) struct Beginnings {
    /// In a session that has its settings.
    plain: SqlStr,
    /// With the session's settings for this transaction.
    with_settings: SqlStr,
}

impl Beginnings {
    pub(super) fn of(statements: &SharedStatements) -> Self {
        let plain = statements.transaction_begin.clone();
        let settings = &statements.transaction_begin_settings;
        let both = format!("{};\n{}", plain.as_str(), settings.as_str());
        // Two texts of ours.
        Self { plain, with_settings: sqlx::SqlSafeStr::into_sql_str(sqlx::AssertSqlSafe(both)) }
    }
}

/// A connection out of a pool. One whose user was dropped before the answer came is closed and not used again:
/// what the server still has to say to it is nobody's, and a statement may still run.
pub(super) struct Checkout {
    connection: PoolConnection<Postgres>,
    answered: bool,
    /// How the transaction ends that the answer commits.
    transaction: Option<Endings>,
}

struct Endings {
    commit: SqlStr,
    rollback: SqlStr,
}

impl Checkout {
    /// Each statement is a transaction of its own.
    pub(super) fn new(connection: PoolConnection<Postgres>) -> Self {
        Self { connection, answered: false, transaction: None }
    }

    /// Everything until the answer is one transaction.
    pub(super) async fn begin(
        connection: PoolConnection<Postgres>,
        mode: Mode,
        beginnings: &Beginnings,
        statements: &SharedStatements,
    ) -> Result<Self, sqlx::Error> {
        let mut checkout = Self::new(connection);
        let text = match mode {
            Mode::Direct => &beginnings.plain,
            Mode::Pooled => &beginnings.with_settings,
        };
        sqlx::raw_sql(text.clone()).execute(&mut *checkout.connection).await?;
        checkout.transaction = Some(Endings {
            commit: statements.transaction_commit.clone(),
            rollback: statements.transaction_rollback.clone(),
        });
        Ok(checkout)
    }

    /// Takes note of an answer, and maps an error. Ends the transaction, if there is one: what it did is done when
    /// this returns. A connection to a server that turned read-only is closed.
    pub(super) async fn answer<T>(&mut self, doing: &str, result: Result<T, sqlx::Error>) -> Result<T, Error> {
        let value = match result {
            Ok(value) => value,
            Err(err) => return Err(self.failed(doing, err).await),
        };
        if let Some(endings) = self.transaction.take() {
            let committed = sqlx::raw_sql(endings.commit).execute(&mut *self.connection).await;
            committed.map_err(|err| error::map(doing, err))?;
        }
        self.answered = true;
        Ok(value)
    }

    /// Ends the transaction so that nothing of it stays.
    pub(super) async fn undo(&mut self, doing: &str) -> Result<(), Error> {
        if let Some(endings) = self.transaction.take() {
            let undone = sqlx::raw_sql(endings.rollback).execute(&mut *self.connection).await;
            undone.map_err(|err| error::map(doing, err))?;
        }
        Ok(())
    }

    /// As [`Checkout::answer`], of an error: nothing of the transaction stays.
    pub(super) async fn failed(&mut self, doing: &str, err: sqlx::Error) -> Error {
        self.answered = match self.transaction.take() {
            None => !error::is_read_only(&err),
            Some(_) if !matches!(err, sqlx::Error::Database(_)) || error::is_read_only(&err) => false,
            Some(endings) => sqlx::raw_sql(endings.rollback).execute(&mut *self.connection).await.is_ok(),
        };
        error::map(doing, err)
    }
}

impl Deref for Checkout {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Checkout {
    fn deref_mut(&mut self) -> &mut PgConnection {
        // In use again: an earlier answer says nothing about this one.
        self.answered = false;
        &mut self.connection
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        if !self.answered {
            self.connection.close_on_drop();
        }
    }
}
