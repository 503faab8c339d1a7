//! What the port says about groups and their bindings.

use std::time::Duration;

use crate::error::{Error, Kind};
use crate::identity::{GroupId, GroupName, MessageId, PresenceId, StreamId};
use crate::time::Timestamp;

/// Where a new group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartParams {
    /// Before the first stored message.
    Beginning,
    /// After the newest message that was ever produced when the group registers.
    Head,
    /// At this id: the first one that the group may get.
    Id(MessageId),
    /// At the first message created at this time or later.
    Time(Timestamp),
}

/// What a group's registration stores.
#[derive(Clone, Debug)]
pub struct GroupParams {
    /// The stream that the group reads.
    pub stream: StreamId,
    /// The group's name.
    pub name: GroupName,
    /// `parallel`, `exclusive` or `ordered`; fixed when the group is created.
    pub key_policy: &'static str,
    /// The retry policy as a JSON object.
    pub retry: String,
    /// The handler's time limit.
    pub timeout: Duration,
    /// `off`, `failures` or `all`.
    pub delivery_log: &'static str,
    /// The patterns that the group listens to; none means the whole stream.
    pub bindings: Vec<String>,
    /// The declaring process, if it consumes.
    pub presence: Option<PresenceId>,
    /// Where the group begins, read only when it is new.
    pub start: StartParams,
}

/// What a registration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// It was new.
    Created,
    /// It was stored already, just so.
    Joined,
    /// Stored numbers or bindings were replaced.
    Updated,
}

/// What a process asks of a group's bindings.
#[derive(Clone, Debug)]
pub struct BindingParams {
    /// The stream.
    pub stream: StreamId,
    /// The group.
    pub group: GroupId,
    /// The asking process, if it consumes.
    pub presence: Option<PresenceId>,
    /// The bindings that it declares; `None` only asks for the stored ones.
    pub declared: Option<Vec<String>>,
}

/// A group's bindings as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingRow {
    /// The patterns in order; none means the whole stream.
    pub patterns: Vec<String>,
    /// Why the declared ones are not the stored ones yet.
    pub hold: Option<BindingHold>,
}

/// What keeps declared bindings from being stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindingHold {
    /// This live process declares the stored ones.
    Declared(String),
    /// A range that was claimed under the stored ones waits for a new owner.
    Abandoned,
    /// This live process declares others, and has waited for longer.
    Queued(String),
}

/// A group as it is stored after a registration.
#[derive(Clone, Debug)]
pub struct GroupRow {
    /// The group's id.
    pub id: GroupId,
    /// The stored key policy.
    pub key_policy: String,
    /// What the registration did.
    pub registered: Registered,
    /// The stored bindings, and why they are not the declared ones if they aren't.
    pub bindings: BindingRow,
}

impl BindingRow {
    /// Patterns as they are compared: their order means nothing, nor does saying one twice.
    pub(crate) fn sorted(patterns: &[String]) -> Vec<String> {
        let mut sorted = patterns.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        sorted
    }
}

pub(crate) fn missing_group(group: GroupId) -> Error {
    Error::new(
        Kind::Declaration,
        "SQLS-0320",
        format!("group {group} is not stored any more - register the group again"),
    )
}

impl BindingHold {
    /// From `reason` and `process` of `binding_hold`.
    pub(crate) fn of(reason: &str, process: Option<String>) -> Self {
        let process = process.unwrap_or_default();
        match reason {
            "declared" => Self::Declared(process),
            "queued" => Self::Queued(process),
            _ => Self::Abandoned,
        }
    }
}

impl std::fmt::Display for BindingHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Declared(process) => write!(f, "process \"{process}\" still declares the stored ones"),
            Self::Abandoned => f.write_str("a range that was claimed under the stored ones waits for a new owner"),
            Self::Queued(process) => write!(f, "process \"{process}\" has waited for longer to store others"),
        }
    }
}
