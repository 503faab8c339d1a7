//! What Postgres reports, in this crate's words. The only file that knows a SQLSTATE.

use super::{message, migration, partition};
use crate::error::{Error, Kind};

/// A role's connection to a server that became read-only must not go back into a pool.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    code_of(error).as_deref() == Some("25006")
}

/// A message id that no partition covers.
pub(crate) fn is_missing_partition(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(database) => {
            database.code().as_deref() == Some("23514") && database.constraint().is_none()
        }
        _ => false,
    }
}

/// A lock was not free in time.
pub(crate) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    code_of(error).as_deref() == Some("55P03")
}

/// A call that the role may not make, although everything exists.
pub(crate) fn is_permission(error: &sqlx::Error) -> bool {
    code_of(error).as_deref() == Some("42501")
}

/// The installation is not there.
pub(crate) fn is_missing_table(error: &sqlx::Error) -> bool {
    matches!(code_of(error).as_deref(), Some("42P01" | "3F000"))
}

/// After an insert in the caller's transaction failed for want of a partition, which exists by now.
pub(crate) fn partition_added() -> Error {
    Error::new(
        Kind::Conflict,
        "SQLS-0211",
        "the stream had no partition for the message; it has one now - roll back and run the transaction again",
    )
}

fn code_of(error: &sqlx::Error) -> Option<String> {
    match error {
        sqlx::Error::Database(database) => database.code().map(|code| code.into_owned()),
        _ => None,
    }
}

/// Maps an error of `doing`, a phrase such as `producing to stream 7`.
pub(crate) fn map(doing: &str, error: sqlx::Error) -> Error {
    match &error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
            Error::new(Kind::Unavailable, "SQLS-0101", format!("the connection to Postgres broke while {doing}"))
                .ambiguous()
                .with_source(error)
        }
        sqlx::Error::PoolTimedOut => Error::new(
            Kind::Unavailable,
            "SQLS-0102",
            format!(
                "no connection to Postgres became free while {doing} - give the pool more connections, or a longer acquire_timeout"
            ),
        ),
        sqlx::Error::PoolClosed => {
            Error::new(Kind::Shutdown, "SQLS-0103", format!("the connection pool was closed before {doing}"))
        }
        sqlx::Error::Tls(_) => Error::new(
            Kind::Unavailable,
            "SQLS-0104",
            "the server wants an encrypted connection - build with the feature `tls-rustls` or `tls-native`",
        )
        .with_source(error),
        sqlx::Error::Database(_) => map_database(doing, error),
        _ => Error::new(Kind::Database, "SQLS-0199", format!("Postgres gave an unexpected answer while {doing}"))
            .with_source(error),
    }
}

/// Where a missing right comes from.
fn way_to_right(doing: &str) -> String {
    let kinds = match doing {
        migration::MIGRATING => return "connect as the installation's owner".to_owned(),
        migration::CHECKING => "RoleKind::Produce, RoleKind::Consume or RoleKind::Admin",
        message::PRODUCING | message::PRODUCING_IN | partition::ADDING => "RoleKind::Produce",
        _ => "RoleKind::Consume",
    };
    format!("the installation's owner grants it with the SQL of `client.grants({kinds}, role)`")
}

/// What only poolers say.
fn refused_by_a_pooler(error: &sqlx::Error) -> Option<Error> {
    let sqlx::Error::Database(database) = error else { return None };
    let message = database.message();
    if let Some((_, parameter)) = message.split_once("unsupported startup parameter: ") {
        let text = format!(
            "a connection pooler refuses the startup parameter `{parameter}` - make the client with \
             `ClientOptions::new().pooled(true)`, and a pool of your own with `extra_float_digits(None)` and no \
             `options(..)`; or connect to Postgres itself"
        );
        return Some(Error::new(Kind::Configuration, "SQLS-0131", text));
    }
    message.contains("statement pooling mode").then(super::probe::no_transactions)
}

fn map_database(doing: &str, error: sqlx::Error) -> Error {
    if let Some(refused) = refused_by_a_pooler(&error) {
        return refused;
    }
    let code = code_of(&error).unwrap_or_default();
    match code.as_str() {
        "40001" | "40P01" => Error::new(
            Kind::Conflict,
            "SQLS-0111",
            format!("another transaction collided while {doing} - roll back and run the transaction again"),
        ),
        "55P03" | "57014" => Error::new(Kind::Busy, "SQLS-0112", format!("a lock was not free in time while {doing}")),
        "25006" => Error::new(
            Kind::Unavailable,
            "SQLS-0113",
            format!("the server accepts no writes ({doing}) - it is a replica, or was one before a failover"),
        ),
        "42501" => Error::new(
            Kind::Permission,
            "SQLS-0114",
            format!("the database role lacks a right for {doing} - {}", way_to_right(doing)),
        )
        .with_source(Plain(error)),
        "42P01" | "3F000" | "42883" => Error::new(
            Kind::Migration,
            "SQLS-0115",
            format!("a table or function of the installation is missing while {doing} - run `client.migrate()` once, as its owner"),
        )
        .with_source(Plain(error)),
        "22P05" | "22021" | "22P02" => Error::new(
            Kind::Message,
            "SQLS-0116",
            format!("Postgres can't store the text while {doing} - U+0000 and lone surrogates have no place in its `json`"),
        ),
        code if code.starts_with("57P") || code.starts_with("08") => {
            Error::new(Kind::Unavailable, "SQLS-0117", format!("Postgres ended the connection while {doing}"))
                .ambiguous()
                .with_source(Plain(error))
        }
        code if code.starts_with("53") => {
            Error::new(Kind::Busy, "SQLS-0118", format!("Postgres is out of a resource while {doing}"))
                .with_source(Plain(error))
        }
        _ => Error::new(Kind::Database, "SQLS-0198", format!("Postgres refused a statement while {doing}"))
            .with_source(Plain(error)),
    }
}

/// A server's error without its detail line, which can hold a row's values.
struct Plain(sqlx::Error);

impl std::fmt::Debug for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            sqlx::Error::Database(database) => {
                write!(f, "{} ({})", database.message(), database.code().unwrap_or_default())
            }
            other => write!(f, "{other}"),
        }
    }
}

impl std::error::Error for Plain {}
