//! What the port says about claims and range leases.

use super::ExceptionParams;
use crate::identity::MessageId;
use crate::identity::{GroupId, LeaseToken, PresenceId, StreamId};
use crate::time::Timestamp;
use sqlstreams_schema::DeliveryLog;

/// A claim of fresh messages.
#[derive(Clone, Debug)]
pub struct ClaimParams {
    /// The stream.
    pub stream: StreamId,
    /// The group that claims.
    pub group: GroupId,
    /// The claiming process.
    pub presence: PresenceId,
    /// The new lease's key.
    pub token: LeaseToken,
    /// How many ids to take at most; 0 only settles.
    pub width: i64,
    /// Leases whose messages are all handled without an exception: they end.
    pub settled: Vec<LeaseToken>,
    /// The claim outlives a crash of the database. Where a key's messages exclude each other, it must.
    pub durable: bool,
}

/// What a claim did and saw.
#[derive(Clone, Debug, Default)]
pub struct ClaimRow {
    /// The taken ids, (low, high]; none were taken when they are equal.
    pub low: i64,
    /// The taken ids, (low, high].
    pub high: i64,
    /// The newest id that was drawn when the claim looked.
    pub head: i64,
    /// The highest id that is proven to have nothing uncommitted below it.
    pub proven: i64,
    /// Another claimer was in the way: ask again at once.
    pub contended: bool,
    /// An observation waits for running transactions to end.
    pub pending: bool,
    /// The group has no cursor: it was removed.
    pub missing: bool,
    /// Another one than before: the group was moved, and leases of an earlier one may be lost.
    pub epoch: i64,
    /// Taken messages up to this id were handed out before the group was rewound.
    pub replay_until: Option<i64>,
}

/// Which messages of a range to read.
#[derive(Clone, Debug)]
pub struct ReadParams {
    /// The stream.
    pub stream: StreamId,
    /// The ids, (low, high].
    pub low: i64,
    /// The ids, (low, high].
    pub high: i64,
    /// Rows of these versions come with their payload, others without.
    pub versions: Vec<i32>,
    /// Only rows of this version, for a parked range.
    pub only_version: Option<i32>,
    /// Only rows whose routing key matches one of these patterns; none means all.
    pub bindings: Vec<String>,
}

/// A range lease that was taken over.
#[derive(Clone, Debug)]
pub struct LeaseRow {
    /// The new token.
    pub token: LeaseToken,
    /// The ids, (low, high].
    pub low: i64,
    /// The ids, (low, high].
    pub high: i64,
    /// Set for a lease on a parked range: only rows of this version belong to it.
    pub only_version: Option<i32>,
    /// How often an owner was lost with this range.
    pub reclaims: i32,
    /// Intervals (low, high] inside the range that an earlier owner reported as handled.
    pub done: Vec<(i64, i64)>,
    /// Messages up to this id were handed out before the group was rewound.
    pub replay_until: Option<i64>,
}

/// The end of one range lease that is not clean.
#[derive(Clone, Debug)]
pub struct SettleParams {
    /// The stream.
    pub stream: StreamId,
    /// The lease.
    pub token: LeaseToken,
    /// Its messages in trouble.
    pub exceptions: Vec<ExceptionParams>,
    /// Versions in the range that this build can't read: (version, low, high].
    pub parked: Vec<(i32, i64, i64)>,
    /// Which outcomes the delivery log gets a row of.
    pub log: DeliveryLog,
    /// Its handled messages, where the log keeps those, and in a replay: their dead letters go.
    pub handled: Vec<MessageId>,
    /// The time, for tests; the database's clock otherwise.
    pub now: Option<Timestamp>,
}

/// Handled intervals of one lease, for a takeover.
#[derive(Clone, Debug)]
pub struct ProgressParams {
    /// The lease.
    pub token: LeaseToken,
    /// Handled intervals (low, high].
    pub done: Vec<(i64, i64)>,
}

/// One lease that goes back before all of its messages are handled.
#[derive(Clone, Debug)]
pub struct ReturnParams {
    /// The lease.
    pub token: LeaseToken,
    /// Intervals (low, high] that need no handler any more: handled messages, and those in `exceptions`.
    pub done: Vec<(i64, i64)>,
    /// Messages inside it that are in trouble.
    pub exceptions: Vec<ExceptionParams>,
}
