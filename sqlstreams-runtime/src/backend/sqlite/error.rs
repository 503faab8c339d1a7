//! What SQLite reports, in this crate's words. The only file that knows a SQLITE code.

use std::time::Duration;

use crate::error::{Error, Kind};

const MISSING_TABLE: &str = "SQLS-0115";
const TOO_LARGE: &str = "SQLS-0129";
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const BUSY_SNAPSHOT: i32 = 517;

/// Another connection holds a lock; the statement, and a transaction that begins with it, changed nothing.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(primary(error), Some(BUSY | LOCKED))
}

/// The installation is not there.
pub(crate) fn is_missing_table(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(database) => primary(error) == Some(1) && database.message().starts_with("no such table"),
        _ => false,
    }
}

/// The same of an error that was mapped.
pub(crate) fn says_missing_table(error: &Error) -> bool {
    error.code() == MISSING_TABLE
}

pub(crate) fn says_too_large(error: &Error) -> bool {
    error.code() == TOO_LARGE
}

/// The extended result code.
fn extended(error: &sqlx::Error) -> Option<i32> {
    match error {
        sqlx::Error::Database(database) => database.code().and_then(|code| code.parse().ok()),
        _ => None,
    }
}

fn primary(error: &sqlx::Error) -> Option<i32> {
    extended(error).map(|code| code & 0xff)
}

/// Other processes kept the write lock all this time.
pub(crate) fn busy(doing: &str, waited: Duration) -> Error {
    Error::new(
        Kind::Busy,
        "SQLS-0112",
        format!(
            "the database file stayed locked for {} s while {doing} - look for a transaction that is left \
             open, and inside one of your own use `produce_in`",
            waited.as_secs()
        ),
    )
}

/// The engine's connections were closed.
pub(crate) fn closed(doing: &str) -> Error {
    Error::new(Kind::Shutdown, "SQLS-0103", format!("the client was closed before {doing}"))
}

pub(crate) fn in_memory() -> Error {
    Error::new(
        Kind::Declaration,
        "SQLS-0121",
        "an in-memory database can't be shared by the engine's connections - use a file, for tests one in a temporary folder",
    )
}

pub(crate) fn not_utf8(encoding: &str) -> Error {
    Error::new(
        Kind::Declaration,
        "SQLS-0130",
        format!(
            "the database file stores its texts as {encoding} - use one that stores them as UTF-8, SQLite's default"
        ),
    )
}

pub(crate) fn not_wal(mode: &str) -> Error {
    Error::new(
        Kind::Declaration,
        "SQLS-0122",
        format!(
            "the database file stays in journal mode \"{mode}\" and can't be switched to WAL - keep it on a local disk, \
             writable, and let no connection choose another mode"
        ),
    )
}

/// Maps an error of `doing`, a phrase such as `producing`.
pub(crate) fn map(doing: &str, error: sqlx::Error) -> Error {
    match &error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => Error::new(
            Kind::Unavailable,
            "SQLS-0101",
            format!("the connection to the database file broke while {doing}"),
        )
        .ambiguous()
        .with_source(error),
        sqlx::Error::PoolClosed => closed(doing),
        sqlx::Error::PoolTimedOut => Error::new(
            Kind::Unavailable,
            "SQLS-0102",
            format!(
                "no connection became free while {doing} - give the pool more connections, or a longer acquire_timeout"
            ),
        ),
        sqlx::Error::Database(_) => map_database(doing, error),
        _ => Error::new(Kind::Database, "SQLS-0199", format!("SQLite gave an unexpected answer while {doing}"))
            .with_source(error),
    }
}

/// Maps an error of a statement in the caller's own transaction.
pub(crate) fn map_in_transaction(doing: &str, error: sqlx::Error) -> Error {
    if !is_busy(&error) {
        return map(doing, error);
    }
    let text = if extended(&error) == Some(BUSY_SNAPSHOT) {
        "the transaction began by reading, and another one has written since"
    } else {
        "another transaction is writing"
    };
    Error::new(
        Kind::Conflict,
        "SQLS-0123",
        format!(
            "{text} ({doing}) - begin it with `begin_with(\"begin immediate\")`; roll this one back and run it again"
        ),
    )
}

fn map_database(doing: &str, error: sqlx::Error) -> Error {
    if is_missing_table(&error) {
        return Error::new(
            Kind::Migration,
            MISSING_TABLE,
            format!("a table of the installation is missing while {doing} - run `client.migrate()` once"),
        )
        .with_source(error);
    }
    let (kind, code, text) = match primary(&error) {
        Some(BUSY | LOCKED) => (Kind::Busy, "SQLS-0112", "the database file was locked"),
        Some(3 | 23) => (Kind::Permission, "SQLS-0114", "the file's permissions, or an authorizer, forbid it"),
        Some(8) => (
            Kind::Permission,
            "SQLS-0124",
            "the database is read-only - open it without `mode=ro`, and make the file and its folder writable",
        ),
        Some(13) => (Kind::Unavailable, "SQLS-0125", "the disk or the database is full - make room"),
        Some(14) => (
            Kind::Unavailable,
            "SQLS-0126",
            "the database file can't be opened - create its folder, and the file, for example with `?mode=rwc`",
        ),
        Some(11) => (Kind::Database, "SQLS-0127", "the database file is damaged - restore a backup"),
        Some(26) => (Kind::Database, "SQLS-0128", "the file is not an SQLite database, or it is encrypted"),
        Some(18) => {
            (Kind::Message, TOO_LARGE, "a value is larger than SQLite takes - produce fewer or smaller messages")
        }
        Some(7) => (Kind::Unavailable, "SQLS-0118", "SQLite is out of memory"),
        Some(10) => {
            return Error::new(Kind::Unavailable, "SQLS-0117", format!("the disk reported an error while {doing}"))
                .ambiguous()
                .with_source(error);
        }
        _ => (Kind::Database, "SQLS-0198", "SQLite refused a statement"),
    };
    Error::new(kind, code, format!("{text} ({doing})")).with_source(error)
}
