//! What the port says about the delivery log.

use sqlstreams_schema::DeliveryLog;

use crate::time::Timestamp;

/// What became of one attempt to handle a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptStatus {
    /// It was handled.
    Done,
    /// It failed and was to run again.
    Retry,
    /// The handler asked for a later run.
    Later,
    /// It died.
    Dead,
}

impl AttemptStatus {
    /// From a row.
    pub(crate) fn of(status: &str) -> Result<Self, String> {
        match status {
            "done" => Ok(Self::Done),
            "retry" => Ok(Self::Retry),
            "later" => Ok(Self::Later),
            "dead" => Ok(Self::Dead),
            other => Err(format!("an attempt with the unknown status {other:?}")),
        }
    }
}

/// One attempt to handle a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptRow {
    /// Its number, from 1. A run whose process was lost has none: its outcome is unknown.
    pub attempt: u32,
    /// What became of it.
    pub status: AttemptStatus,
    /// The failure's text.
    pub error: Option<String>,
    /// When its outcome was recorded, by the database's clock.
    pub at: Timestamp,
}

/// The outcomes that a group's delivery log keeps, as rows name them.
pub(crate) fn logged(log: DeliveryLog) -> &'static [&'static str] {
    match log {
        DeliveryLog::Off => &[],
        DeliveryLog::Failures => &["retry", "later", "dead"],
        DeliveryLog::All => &["done", "retry", "later", "dead"],
    }
}
