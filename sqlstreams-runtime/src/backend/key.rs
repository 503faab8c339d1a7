//! What the port says about message keys and their lanes.

use std::time::Duration;

use super::ExceptionNext;
use crate::identity::{GroupId, LeaseToken, MessageId, StreamId};
use crate::time::Timestamp;

/// A question about keys.
#[derive(Clone, Debug)]
pub struct KeyGateParams {
    /// The stream.
    pub stream: StreamId,
    /// The group.
    pub group: GroupId,
    /// Leases whose messages the caller lines up itself.
    pub own: Vec<LeaseToken>,
    /// Who asks.
    pub keys: Vec<KeyAsk>,
}

/// A message, or the messages of one key in a range, that want to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyAsk {
    /// The key.
    pub key: String,
    /// The low end of the range, or the ticket of a message in trouble.
    pub low: i64,
    /// The message in trouble.
    pub message: Option<MessageId>,
}

/// What keeps a key's message from starting, all as of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyGateRow {
    /// The key has a lane.
    pub laned: bool,
    /// The lane is being run.
    pub lane_runs: bool,
    /// A lower range of another owner holds a message of the key that is not known to be handled, or another message
    /// of the key has a lower ticket.
    pub busy: bool,
    /// Another message of the key has a ticket, whichever.
    pub ticketed: bool,
}

/// A lane that the caller took: the key's row in the exception queue.
#[derive(Clone, Debug)]
pub struct LaneParams {
    /// The stream.
    pub stream: StreamId,
    /// The group.
    pub group: GroupId,
    /// The key of what was taken.
    pub token: LeaseToken,
    /// The message that the lane stands at.
    pub at: MessageId,
    /// The time, for tests.
    pub now: Option<Timestamp>,
}

/// Which messages of a lane to read.
#[derive(Clone, Debug)]
pub struct LaneReadParams {
    /// The stream.
    pub stream: StreamId,
    /// The key.
    pub message_key: String,
    /// After this id.
    pub after: i64,
    /// Up to this id.
    pub held_to: i64,
    /// At most this many.
    pub limit: i64,
    /// Rows of these versions come with their payload, others without.
    pub versions: Vec<i32>,
    /// Only rows whose routing key matches one of these patterns; none means all.
    pub bindings: Vec<String>,
}

/// A key that is held up, and what holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneRow {
    /// The key.
    pub key: String,
    /// The message that comes next; those of the key behind it wait.
    pub message: MessageId,
    /// That message's version.
    pub schema_version: u32,
    /// The last message of the key that is known to wait.
    pub held_to: MessageId,
    /// Whether a process runs the key's messages now.
    pub running: bool,
    /// Runs of the message whose outcome was recorded.
    pub attempts: u32,
    /// Its failures.
    pub failures: u32,
    /// How long until it runs again; zero when it is due, and while it runs.
    pub due_in: Duration,
    /// Its last failure; `None` when it has not failed: it was put off, waits for a build that reads it, or its key is
    /// busier than others.
    pub error: Option<String>,
}

/// Where a lane goes.
#[derive(Clone, Debug)]
pub struct LaneMove {
    /// To this message.
    pub to: MessageId,
    /// Its version.
    pub schema_version: u32,
    /// What happens with it; `None` when the caller goes on with it.
    pub next: Option<ExceptionNext>,
}
