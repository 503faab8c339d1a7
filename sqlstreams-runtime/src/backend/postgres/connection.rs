//! Connections while they are used.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres};

use super::error;
use crate::error::Error;

/// A connection out of a pool. One whose user was dropped before the answer came is closed and not used again:
/// what the server still has to say to it is nobody's, and a statement may still run.
pub(super) struct Checkout {
    connection: PoolConnection<Postgres>,
    answered: bool,
}

impl Checkout {
    pub(super) fn new(connection: PoolConnection<Postgres>) -> Self {
        Self { connection, answered: false }
    }

    /// Takes note of an answer, and maps an error. A connection to a server that turned read-only is closed too.
    pub(super) fn answer<T>(&mut self, doing: &str, result: Result<T, sqlx::Error>) -> Result<T, Error> {
        self.answered = !matches!(&result, Err(err) if error::is_read_only(err));
        result.map_err(|err| error::map(doing, err))
    }

    /// As [`Checkout::answer`], of an error.
    pub(super) fn failed(&mut self, doing: &str, err: sqlx::Error) -> Error {
        self.answered = !error::is_read_only(&err);
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
