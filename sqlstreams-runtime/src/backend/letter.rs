//! What the port says about dead letters.

use crate::identity::{GroupId, MessageId, StreamId};
use crate::message::StoredMessage;
use crate::time::Timestamp;

/// A dead letter, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterRow {
    /// The message.
    pub id: MessageId,
    /// Its version.
    pub schema_version: u32,
    /// Its key.
    pub message_key: Option<String>,
    /// Runs whose outcome was recorded.
    pub attempts: u32,
    /// Failures, also those before a redrive.
    pub failures: u32,
    /// Owners that were lost with it since the last redrive.
    pub kills: u32,
    /// Delays that the handler asked for.
    pub delays: u32,
    /// How often it was redriven.
    pub redrives: u32,
    /// When it failed for the first time; `None` when it never did, as one that lost its owners.
    pub first_failed_at: Option<Timestamp>,
    /// When it died; `None` while it is not dead.
    pub died_at: Option<Timestamp>,
    /// Why it is dead, or what the last failure was; at most 1 KiB.
    pub error: String,
}

/// Which dead letters an operation is about. What is not set does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterFilter {
    /// The error contains this text, in this case.
    pub error_contains: Option<String>,
    /// The error begins with this text, in this case.
    pub error_starts_with: Option<String>,
    /// The message's version.
    pub version: Option<u32>,
    /// It died at this time or later.
    pub died_since: Option<Timestamp>,
    /// It died before this time.
    pub died_until: Option<Timestamp>,
}

impl DeadLetterFilter {
    /// All of them.
    pub fn all() -> Self {
        Self::default()
    }

    /// Those whose error contains `text`, in this case.
    pub fn error_contains(mut self, text: impl Into<String>) -> Self {
        self.error_contains = Some(text.into());
        self
    }

    /// Those whose error begins with `text`, in this case.
    pub fn error_starts_with(mut self, text: impl Into<String>) -> Self {
        self.error_starts_with = Some(text.into());
        self
    }

    /// Those of a payload's version.
    pub fn version(mut self, version: u32) -> Self {
        self.version = Some(version);
        self
    }

    /// Those that died at this time or later.
    pub fn died_since(mut self, time: impl Into<Timestamp>) -> Self {
        self.died_since = Some(time.into());
        self
    }

    /// Those that died before this time.
    pub fn died_until(mut self, time: impl Into<Timestamp>) -> Self {
        self.died_until = Some(time.into());
        self
    }
}

/// A page of dead letters.
#[derive(Clone, Debug)]
pub struct LetterParams {
    /// The stream.
    pub stream: StreamId,
    /// The group.
    pub group: GroupId,
    /// Which ones.
    pub filter: DeadLetterFilter,
    /// Only ids above this one.
    pub after: MessageId,
    /// Only ids up to this one.
    pub last: MessageId,
    /// At most this many.
    pub limit: i64,
}

/// Dead letters of one error and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterCountRow {
    /// The error.
    pub error: String,
    /// The version.
    pub schema_version: u32,
    /// How many.
    pub messages: u64,
    /// Of how many the payload is still there; 0 when it was not looked for.
    pub stored: u64,
    /// The lowest id.
    pub oldest: MessageId,
    /// The highest id.
    pub newest: MessageId,
    /// When the first of them died.
    pub first_died_at: Timestamp,
    /// When the last of them died.
    pub last_died_at: Timestamp,
}

/// Dead letters by error and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterCounts {
    /// The most frequent first.
    pub groups: Vec<LetterCountRow>,
    /// How many letters, also those of groups beyond the limit.
    pub messages: u64,
    /// Of how many of them the payload is still there; 0 when it was not looked for.
    pub stored: u64,
}

/// What a message in trouble waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TroubleStatus {
    /// Another run, not before this time.
    Waiting {
        /// When it is due.
        due: Timestamp,
    },
    /// It is being run.
    Running,
    /// A person: it is a dead letter.
    Dead,
}

impl TroubleStatus {
    /// From a row's status and the time when it is due.
    pub(crate) fn of(status: &str, due: Option<Timestamp>) -> Self {
        match (status, due) {
            ("inflight", _) => Self::Running,
            ("ready" | "deferred", Some(due)) => Self::Waiting { due },
            _ => Self::Dead,
        }
    }
}

/// A message in trouble, with its payload.
#[derive(Clone, Debug)]
pub struct LetterRow {
    /// What is known about it.
    pub letter: DeadLetterRow,
    /// Where it stands.
    pub status: TroubleStatus,
    /// The message, as the log holds it or as it was copied; `None` when neither is there.
    pub message: Option<StoredMessage>,
}

/// Which messages in trouble may be discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiscardScope {
    /// Dead letters.
    #[default]
    Dead,
    /// Also those that wait for another run.
    Waiting,
    /// Also those that are being run. The handler goes on, and its outcome is not recorded.
    Running,
}

impl DiscardScope {
    /// The statuses of the rows that it covers.
    pub fn statuses(self) -> &'static [&'static str] {
        match self {
            Self::Dead => &["dead"],
            Self::Waiting => &["dead", "ready", "deferred"],
            Self::Running => &["dead", "ready", "deferred", "inflight"],
        }
    }
}

/// What was done with one page of dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LetterBatch {
    /// How many were looked at; fewer than the limit: there are no more.
    pub found: i64,
    /// How many were changed.
    pub changed: i64,
    /// The highest id that was looked at.
    pub last: Option<MessageId>,
}
