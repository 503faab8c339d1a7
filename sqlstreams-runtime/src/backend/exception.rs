//! What the port says about messages in trouble.

use std::time::Duration;

use sqlstreams_schema::DeliveryLog;

use crate::identity::{GroupId, LeaseToken, MessageId, PresenceId, StreamId};
use crate::message::StoredMessage;
use crate::time::Timestamp;

/// A message that needs a row of its own.
#[derive(Clone, Debug)]
pub struct ExceptionParams {
    /// The message.
    pub message: MessageId,
    /// Its version.
    pub schema_version: u32,
    /// Its key.
    pub message_key: Option<String>,
    /// Set in an ordered group: the row is the key's lane, and the key's messages up to this id wait behind it. When
    /// the key has a lane already, that one is extended instead, and `next` does not matter.
    pub held_to: Option<i64>,
    /// What happens next.
    pub next: ExceptionNext,
}

/// What happens next with a message in trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExceptionNext {
    /// Run again after a failure.
    Retry {
        /// How long from now.
        after: Duration,
        /// The failure's text.
        error: String,
    },
    /// Run again without a strike.
    Later {
        /// How long from now.
        after: Duration,
    },
    /// A dead letter.
    Dead {
        /// The reason.
        error: String,
    },
    /// Handled: the row goes. Only for messages that have a row.
    Done,
    /// Unhandled: ready at once, nothing counted.
    Return,
    /// Unhandled: ready later, nothing counted.
    Wait {
        /// How long from now.
        after: Duration,
    },
}

/// Which messages in trouble to take.
#[derive(Clone, Debug)]
pub struct ExceptionTakeParams {
    /// The stream.
    pub stream: StreamId,
    /// The group.
    pub group: GroupId,
    /// The taking process.
    pub presence: PresenceId,
    /// The key of what is taken.
    pub token: LeaseToken,
    /// At most this many.
    pub limit: i64,
    /// Versions that this build reads.
    pub versions: Vec<i32>,
    /// Beside them, at most this many that lost an owner before. Which of them kills its process is known only
    /// when each runs alone.
    pub suspects: i64,
    /// After this many lost owners a message is dead.
    pub max_kills: i32,
    /// Only what became due at this time or later, suspects aside; everything when it is `None`.
    pub due_from: Option<Timestamp>,
    /// The time, for tests.
    pub now: Option<Timestamp>,
}

/// A message in trouble that was taken.
#[derive(Clone, Debug)]
pub struct ExceptionRow {
    /// The message, as the log holds it or as it was copied; `None` when neither is there.
    pub message: Option<StoredMessage>,
    /// Its id.
    pub id: MessageId,
    /// When it became due.
    pub due: Timestamp,
    /// Outcomes recorded so far.
    pub attempts: i32,
    /// Failures since the last redrive.
    pub failures: i32,
    /// Delays that the handler asked for.
    pub delays: i32,
    /// Owners that were lost with it.
    pub kills: i32,
    /// Set for a lane: the key's messages up to this id wait behind this one.
    pub held_to: Option<i64>,
    /// Its key.
    pub message_key: Option<String>,
    /// Messages up to this id were handed out before the group was rewound.
    pub replay_until: Option<i64>,
}

/// What became of messages in trouble.
#[derive(Clone, Debug)]
pub struct ExceptionSettleParams {
    /// The stream.
    pub stream: StreamId,
    /// The group.
    pub group: GroupId,
    /// The key of what was taken.
    pub token: LeaseToken,
    /// Each message with what happens next.
    pub exceptions: Vec<ExceptionParams>,
    /// Which outcomes the delivery log gets a row of.
    pub log: DeliveryLog,
    /// The time, for tests.
    pub now: Option<Timestamp>,
}
