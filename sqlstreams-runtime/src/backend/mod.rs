//! The port: what the engine asks of a database, one method an operation, each a contract that both
//! backends keep. Everything above it is the same for every database.

use std::time::Duration;

use async_trait::async_trait;
use sqlstreams_schema::DeliveryLog;

use crate::error::Error;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::error::Kind;
use crate::identity::{
    DelayedId, GroupId, GroupName, LeaseToken, MessageId, PresenceId, StreamId, StreamName, WorkerId, WorkerToken,
};
use crate::message::{NewMessage, StoredMessage};
use crate::time::Timestamp;

mod delivery;
mod letter;
mod options;
#[cfg(feature = "postgres")]
pub mod postgres;
mod replay;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod template;
mod workers;

pub(crate) use options::KEY_HELD;
pub use options::{FirstRow, ProduceWithParams, ProducedRow, PromoteParams, PromoteRow, SweepParams, SweepRow};
pub use workers::{WorkerLookParams, WorkerLookRow, WorkerNames, WorkerRow, WorkerStateRow};

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use delivery::logged;
pub use delivery::{AttemptRow, AttemptStatus};
pub use letter::{
    DeadLetterFilter, DeadLetterRow, DiscardScope, LetterBatch, LetterCountRow, LetterCounts, LetterParams, LetterRow,
    TroubleStatus,
};
pub use replay::{ReplayParams, ReplayRow, ReplayTouched, ReplayWay};

/// What a stream's registration stores.
#[derive(Clone, Debug)]
pub struct StreamParams {
    /// The stream's name.
    pub name: StreamName,
    /// The field that is the message key.
    pub message_key: Option<String>,
    /// Ids a partition; fixed when the stream is created.
    pub partition_size: i64,
    /// The payload's version that this build declares.
    pub schema_version: u32,
    /// The number of the codec that this build writes.
    pub codec: i16,
    /// The payload's normalised shape, canonical text.
    pub shape: String,
    /// SHA-256 of `shape`.
    pub shape_hash: [u8; 32],
    /// The payload's JSON Schema, for people.
    pub json_schema: String,
}

/// A stream as it is stored after a registration, by whomever.
#[derive(Clone, Debug)]
pub struct StreamRow {
    /// The stream's id.
    pub id: StreamId,
    /// The stored key field.
    pub message_key: Option<String>,
    /// The stored partition size.
    pub partition_size: i64,
    /// The stored shape of the asked version.
    pub shape: String,
    /// The stored codec of the asked version.
    pub codec: i16,
}

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

impl BindingRow {
    /// Patterns as they are compared: their order means nothing, nor does saying one twice.
    pub(crate) fn sorted(patterns: &[String]) -> Vec<String> {
        let mut sorted = patterns.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        sorted
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn missing_group(group: GroupId) -> Error {
    Error::new(
        Kind::Declaration,
        "SQLS-0320",
        format!("group {group} is not stored any more - register the group again"),
    )
}

impl BindingHold {
    /// From `reason` and `process` of `binding_hold`.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
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

/// A consuming process.
#[derive(Clone, Debug)]
pub struct PresenceParams {
    /// Its id.
    pub id: PresenceId,
    /// The version of this crate.
    pub build: &'static str,
    /// For people: process id and program.
    pub process: String,
    /// What the process reads, JSON: an array of `{"stream", "group", "versions", "bindings"}`; without `bindings` it
    /// follows the stored ones.
    pub readable: String,
    /// How long it counts as alive without a renewal.
    pub ttl: Duration,
}

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

/// A transaction that keeps a stream's consumers from passing an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StallCause {
    /// Its transaction id, as text.
    pub transaction: String,
    /// The backend's process id; `None` for a prepared transaction.
    pub pid: Option<i32>,
    /// The application's name, or the prepared transaction's.
    pub name: String,
    /// It is prepared: it lasts until somebody commits it or rolls it back.
    pub prepared: bool,
}

/// A group's position and its messages in trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PositionRow {
    /// The newest id that was drawn.
    pub head: i64,
    /// Handed out up to here.
    pub claimed: i64,
    /// Everything at or below is settled.
    pub settled: i64,
    /// Waiting for another run.
    pub ready: i64,
    /// Being run again.
    pub inflight: i64,
    /// Dead letters.
    pub dead: i64,
    /// Ranges that wait for a build that reads their version.
    pub parked: i64,
}

/// The operations of the engine on one installation. "Idempotent" says whether a call whose answer was
/// lost may simply be made again with the same arguments.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Brings the installation to this build's version. Idempotent; safe side by side.
    async fn migration_apply(&self) -> Result<(), Error>;

    /// Refuses an installation that is missing, lacks a migration of this build, or is too new for it. Idempotent.
    async fn migration_check(&self) -> Result<(), Error>;

    /// Stores a stream and the version of this build, or returns what is stored. Idempotent; durable.
    async fn stream_register(&self, params: &StreamParams) -> Result<StreamRow, Error>;

    /// Stores a group or joins the stored one; the newest declaration's numbers win, and its bindings as by
    /// `binding_declare`. Idempotent; durable.
    async fn group_register(&self, params: &GroupParams) -> Result<GroupRow, Error>;

    /// Stores the declared bindings unless something holds the stored ones: a live process that declares them, a
    /// range claimed under them that nobody works on, a live process that has waited for longer with others.
    /// Answers what is stored then. Idempotent; durable.
    async fn binding_declare(&self, params: &BindingParams) -> Result<BindingRow, Error>;

    /// Makes the process present until its ttl is over. Idempotent.
    async fn presence_enter(&self, params: &PresenceParams) -> Result<(), Error>;

    /// Extends the presence, also one that expired; answers false when the row is gone. Idempotent.
    async fn presence_renew(&self, id: PresenceId, ttl: Duration) -> Result<bool, Error>;

    /// Ends the presence; what it still owns can be taken at once. Idempotent.
    async fn presence_leave(&self, id: PresenceId) -> Result<(), Error>;

    /// Appends messages, all or nothing, durable when it returns; ids in the order of `messages`. Not idempotent.
    async fn message_produce(
        &self,
        stream: StreamId,
        version: u32,
        codec: i16,
        messages: &[NewMessage],
    ) -> Result<Vec<MessageId>, Error>;

    /// Appends messages to the log, or puts them with the delayed ones until they are due, and stores their
    /// idempotency keys; what was produced before with a key is answered instead. The new ones are stored all or
    /// nothing, durable when it returns; ids in the order of the messages. With keys alone idempotent, but the
    /// second answer says that they are duplicates.
    async fn message_produce_with(&self, params: &ProduceWithParams<'_>) -> Result<Vec<ProducedRow>, Error>;

    /// Takes a delayed message back, together with its idempotency key; false when it was not there any more.
    /// Durable. Idempotent, but the second answer is false.
    async fn delayed_cancel(&self, stream: StreamId, id: DelayedId) -> Result<bool, Error>;

    /// Moves delayed messages that are due into the log, in the order of their times. Idempotent.
    async fn delayed_promote(&self, params: &PromoteParams) -> Result<PromoteRow, Error>;

    /// The newest delayed id that was drawn in each of `streams`, for those that have one. Idempotent.
    async fn delayed_heads(&self, streams: &[StreamId]) -> Result<Vec<(StreamId, DelayedId)>, Error>;

    /// Removes idempotency keys that expired. Idempotent.
    async fn idempotency_sweep(&self, params: &SweepParams) -> Result<SweepRow, Error>;

    /// Reads a claimed range by id, in id order. Idempotent.
    async fn message_read(&self, params: &ReadParams) -> Result<Vec<StoredMessage>, Error>;

    /// Ends clean leases, and takes at most `width` ids after the group's cursor, none of which an open
    /// transaction can still fill; no other claimer of the group gets them. Not idempotent: after a lost
    /// answer `lease_find` tells.
    async fn claim_take(&self, params: &ClaimParams) -> Result<ClaimRow, Error>;

    /// The lease with this token, for a claim whose answer was lost. Idempotent.
    async fn lease_find(&self, stream: StreamId, token: LeaseToken) -> Result<Option<LeaseRow>, Error>;

    /// Ends a lease together with recording its exceptions, durable; false and no change when the caller
    /// does not own it any more. Idempotent, but the second answer is false.
    async fn lease_settle(&self, params: &SettleParams) -> Result<bool, Error>;

    /// Takes one lease of the group whose owner is gone. Not idempotent: after a lost answer `lease_find` tells.
    async fn lease_reclaim(
        &self,
        stream: StreamId,
        group: GroupId,
        presence: PresenceId,
        token: LeaseToken,
    ) -> Result<Option<LeaseRow>, Error>;

    /// Records what is handled inside leases and answers which of `tokens` the process still owns;
    /// leases that the process has held for over ten seconds and that are not in `tokens` become free for
    /// others: a claim whose answer was lost. Idempotent.
    async fn lease_report(
        &self,
        stream: StreamId,
        group: GroupId,
        presence: PresenceId,
        tokens: &[LeaseToken],
        progress: &[ProgressParams],
    ) -> Result<Vec<LeaseToken>, Error>;

    /// Gives leases back with what became of the messages inside them; anybody may take the rest at once, and it
    /// counts as no loss of an owner. Leases that the caller does not own any more are left alone. Idempotent.
    async fn lease_return(&self, stream: StreamId, leases: &[ReturnParams]) -> Result<(), Error>;

    /// Takes at most `width` ids of a parked range whose version is in `versions`, as a lease. Not
    /// idempotent: after a lost answer `lease_find` tells.
    async fn parked_take(&self, params: &ClaimParams, versions: &[i32]) -> Result<Option<LeaseRow>, Error>;

    /// Takes due messages in trouble, and those whose owner is gone; a message that lost too many owners
    /// dies instead. Not idempotent: after a lost answer `exception_return` gives them back.
    async fn exception_take(&self, params: &ExceptionTakeParams) -> Result<Vec<ExceptionRow>, Error>;

    /// Records outcomes of taken messages, and answers whose; those that the caller does not own any more are left
    /// alone. Idempotent, but the second answer is empty.
    async fn exception_settle(&self, params: &ExceptionSettleParams) -> Result<Vec<MessageId>, Error>;

    /// What keeps each of these keys from running, in their order. Idempotent.
    async fn key_gate(&self, params: &KeyGateParams) -> Result<Vec<KeyGateRow>, Error>;

    /// Gives a message in trouble that was taken with `token` its place among the ranges of a keyed group: it goes after
    /// those that are claimed by now, and before all later ones. Answers the place. `None` when a claim was in the way -
    /// ask again - or when the caller does not own the message any more. Durable. Idempotent; a repeated call moves it
    /// back.
    async fn key_ticket(
        &self,
        stream: StreamId,
        group: GroupId,
        token: LeaseToken,
        message: MessageId,
    ) -> Result<Option<i64>, Error>;

    /// Reads messages of a lane, in id order. Idempotent.
    async fn lane_read(&self, params: &LaneReadParams) -> Result<Vec<StoredMessage>, Error>;

    /// The group's keys with a lane, in the order of the keys' bytes, after `after`. Idempotent.
    async fn lane_list(
        &self,
        stream: StreamId,
        group: GroupId,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<LaneRow>, Error>;

    /// Moves a lane, whose messages below are resolved; answers where it ends now. `None` and no change when the
    /// caller does not own it any more, or it does not stand at `at`. Not idempotent: it counts the outcome.
    async fn lane_move(&self, lane: &LaneParams, to: &LaneMove) -> Result<Option<i64>, Error>;

    /// Makes the message that the lane stands at a dead letter, and `successor` the lane's message; without one the
    /// lane ends, if it still ends at `held_to`. False and no change otherwise, or when the caller does not own it.
    /// Idempotent, but the second answer is false.
    async fn lane_bury(
        &self,
        lane: &LaneParams,
        error: &str,
        successor: Option<(MessageId, u32)>,
        held_to: i64,
    ) -> Result<bool, Error>;

    /// Ends a lane whose messages are all resolved, if it still ends at `held_to`; false and no change otherwise, or
    /// when the caller does not own it. Idempotent, but the second answer is false.
    async fn lane_end(&self, lane: &LaneParams, held_to: i64) -> Result<bool, Error>;

    /// Makes everything that was taken with `token` and not settled ready again; counts nothing. Idempotent.
    async fn exception_return(&self, stream: StreamId, group: GroupId, token: LeaseToken) -> Result<(), Error>;

    /// The time until the group's next message in trouble is due. Idempotent.
    async fn exception_due(&self, stream: StreamId, group: GroupId) -> Result<Option<Duration>, Error>;

    /// Observes the producers that are running now, so that later claims of these groups can pass the head when they
    /// have ended, whatever else runs. Idempotent.
    async fn cursor_observe(&self, stream: StreamId, groups: &[GroupId]) -> Result<(), Error>;

    /// Moves the stored `committed` of the group up to where everything is settled; false when there was nothing
    /// to move, or a claim was in the way. Idempotent.
    async fn cursor_advance(&self, stream: StreamId, group: GroupId) -> Result<bool, Error>;

    /// Who keeps the group from passing ids now. Idempotent.
    async fn cursor_stall(&self, stream: StreamId, group: GroupId) -> Result<Vec<StallCause>, Error>;

    /// Where the group stands. Idempotent.
    async fn cursor_position(&self, stream: StreamId, group: GroupId) -> Result<PositionRow, Error>;

    /// The group's dead letters, by id. Idempotent.
    async fn letter_list(&self, params: &LetterParams) -> Result<Vec<DeadLetterRow>, Error>;

    /// The group's dead letters by error and version, at most `limit` of these; with `payloads`, also whose
    /// payload is still there, which takes a look for each letter. Idempotent.
    async fn letter_count(&self, params: &LetterParams, payloads: bool) -> Result<LetterCounts, Error>;

    /// A message in trouble, dead or not, with its payload. Idempotent.
    async fn letter_read(&self, stream: StreamId, group: GroupId, id: MessageId) -> Result<Option<LetterRow>, Error>;

    /// Makes one page of dead letters ready again, each due at random within `spread`, durable; one whose payload is
    /// gone stays dead. Not idempotent: a letter may be dead again before the call is repeated.
    async fn letter_redrive(
        &self,
        params: &LetterParams,
        spread: Duration,
        now: Option<Timestamp>,
    ) -> Result<LetterBatch, Error>;

    /// Removes one page of messages in trouble, durable; an owner of one that is being run changes nothing any more.
    /// Not idempotent: the answer counts only its own.
    async fn letter_discard(&self, params: &LetterParams, scope: DiscardScope) -> Result<LetterBatch, Error>;

    /// Where a group would go and what that would touch, with a count of the messages between. Idempotent.
    async fn replay_look(&self, params: &ReplayParams) -> Result<ReplayRow, Error>;

    /// Moves a group, durable: everything above a target behind it is as if it had never been claimed, and whoever
    /// handles it changes nothing any more. Nothing is changed when the place lies the other way, or when a handler
    /// runs and must not. Not idempotent: messages may have been handled again before the call is repeated.
    async fn replay_move(&self, params: &ReplayParams) -> Result<ReplayRow, Error>;

    /// Lets the group take nothing new for `length`, or at once again when it is `None`, durable. What is abandoned or
    /// parked is taken all the same. Idempotent.
    async fn replay_pause(&self, stream: StreamId, group: GroupId, length: Option<Duration>) -> Result<(), Error>;

    /// Adds handled messages of a lease to the delivery log, durable, when the lease is the caller's. Not idempotent.
    async fn delivery_append(&self, stream: StreamId, token: LeaseToken, handled: &[MessageId]) -> Result<(), Error>;

    /// The logged attempts of one message, at most `limit`, the newest first. Idempotent.
    async fn delivery_list(
        &self,
        stream: StreamId,
        group: GroupId,
        message: MessageId,
        limit: i64,
    ) -> Result<Vec<AttemptRow>, Error>;

    /// Makes room ahead of the producers; answers the first id without room, if there is such a bound. Idempotent.
    async fn partition_ensure(&self, stream: StreamId) -> Result<Option<MessageId>, Error>;

    /// Stores the workers of every stream and group that are not stored yet; others stay as they are, also when
    /// they are suspended. Idempotent; durable.
    async fn worker_declare(&self, names: WorkerNames) -> Result<(), Error>;

    /// What a process has to do about workers. Idempotent.
    async fn worker_look(&self, params: &WorkerLookParams) -> Result<WorkerLookRow, Error>;

    /// Takes workers for a process that is present, each with its token, unless others hold them; answers the tokens
    /// that hold. A held worker is free when its owner's presence ends. Idempotent.
    async fn worker_take(
        &self,
        owner: PresenceId,
        workers: &[(WorkerId, WorkerToken)],
        now: Option<Timestamp>,
    ) -> Result<Vec<WorkerToken>, Error>;

    /// Every worker, with how many processes run it. Idempotent.
    async fn worker_list(&self, now: Option<Timestamp>) -> Result<Vec<WorkerStateRow>, Error>;

    /// Sets how many processes run a worker: 0 suspends it. False when it is not there. Idempotent; durable.
    async fn worker_target(&self, id: WorkerId, target: i32) -> Result<bool, Error>;

    /// Tells other processes that `streams` have new messages. A hint. Idempotent.
    async fn wake_send(&self, streams: &[StreamId]) -> Result<(), Error>;

    /// Returns when another process has told of new messages; an empty list means any stream. May fail or
    /// stay silent: polling is what correctness rests on. Idempotent.
    async fn wake_wait(&self) -> Result<Vec<StreamId>, Error>;

    /// Closes the engine's own connections.
    async fn close(&self);
}
