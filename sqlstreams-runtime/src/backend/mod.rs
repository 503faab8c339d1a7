//! The port: what the engine asks of a database, one method an operation, each a contract that both
//! backends keep. Everything above it is the same for every database.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Error;
use crate::identity::{
    DelayedId, GroupId, LeaseToken, MessageId, PresenceId, StreamId, StreamName, WorkerId, WorkerToken,
};
use crate::message::{NewMessage, StoredMessage};
use crate::time::Timestamp;

mod claim;
mod delivery;
mod exception;
mod group;
mod key;
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

pub use claim::{ClaimParams, ClaimRow, LeaseRow, ProgressParams, ReadParams, ReturnParams, SettleParams};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use delivery::logged;
pub use delivery::{AttemptRow, AttemptStatus};
pub use exception::{ExceptionNext, ExceptionParams, ExceptionRow, ExceptionSettleParams, ExceptionTakeParams};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use group::missing_group;
pub use group::{BindingHold, BindingParams, BindingRow, GroupParams, GroupRow, Registered, StartParams};
pub use key::{KeyAsk, KeyGateParams, KeyGateRow, LaneMove, LaneParams, LaneReadParams, LaneRow};
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
