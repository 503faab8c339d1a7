//! The only caller of the port: opens the span that bears a method's name, and repeats what may be repeated.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::backend::{
    AttemptRow, Backend, BindingParams, BindingRow, ClaimParams, ClaimRow, DeadLetterRow, DiscardScope, ExceptionRow,
    ExceptionSettleParams, ExceptionTakeParams, GroupParams, GroupRow, KeyGateParams, KeyGateRow, LaneMove, LaneParams,
    LaneReadParams, LaneRow, LeaseRow, LetterBatch, LetterCounts, LetterParams, LetterRow, PositionRow, PresenceParams,
    ProduceWithParams, ProducedRow, ProgressParams, PromoteParams, PromoteRow, ReadParams, ReplayParams, ReplayRow,
    ReturnParams, SettleParams, StallCause, StreamParams, StreamRow, SweepParams, SweepRow, WorkerLookParams,
    WorkerLookRow, WorkerNames, WorkerStateRow,
};
use crate::error::{Error, Recovery};
use crate::identity::{DelayedId, GroupId, LeaseToken, MessageId, PresenceId, StreamId, WorkerId, WorkerToken};
use crate::message::{NewMessage, StoredMessage};
use crate::time::Timestamp;

/// A backend with spans and retries around it.
#[derive(Clone)]
pub(crate) struct Store {
    backend: Arc<dyn Backend>,
}

impl Store {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend }
    }
}

/// What a presence says of this process, for people.
pub(crate) fn process() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    format!("{} {}", program.unwrap_or("unknown"), std::process::id())
}

const REPEATS: u32 = 4;

/// Waits before repeat `number`, with jitter, so that processes that failed together do not return together.
async fn pause(number: u32) {
    let ceiling = 20u64 << number.min(6);
    tokio::time::sleep(Duration::from_millis(rand::random_range(ceiling / 2..=ceiling))).await;
}

macro_rules! repeat {
    (once, $call:expr) => {
        $call.await
    };
    (idempotent, $call:expr) => {{
        let mut number = 0;
        loop {
            match $call.await {
                Err(err) if err.recovery() == Recovery::Transient && number < REPEATS => {
                    tracing::debug!(error = %err, number, "repeating");
                    pause(number).await;
                    number += 1;
                }
                result => break result,
            }
        }
    }};
}

/// `idempotent`: an ambiguous failure may be answered by making the call again. `once`: only the caller knows.
macro_rules! port {
    ($($class:ident $span:literal $method:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Store {
            $(
                pub(crate) async fn $method(&self, $($argument: $type),*) -> Result<$result, Error> {
                    async { repeat!($class, self.backend.$method($($argument),*)) }
                        .instrument(tracing::debug_span!($span))
                        .await
                }
            )*
        }
    };
}

port! {
    idempotent "migration.apply" migration_apply() -> ();
    idempotent "migration.check" migration_check() -> ();
    idempotent "stream.register" stream_register(params: &StreamParams) -> StreamRow;
    idempotent "group.register" group_register(params: &GroupParams) -> GroupRow;
    idempotent "binding.declare" binding_declare(params: &BindingParams) -> BindingRow;
    idempotent "presence.enter" presence_enter(params: &PresenceParams) -> ();
    once "presence.renew" presence_renew(id: PresenceId, ttl: Duration) -> bool;
    idempotent "presence.leave" presence_leave(id: PresenceId) -> ();
    once "message.produce" message_produce(stream: StreamId, version: u32, codec: i16, messages: &[NewMessage]) -> Vec<MessageId>;
    once "message.produce_with" message_produce_with(params: &ProduceWithParams<'_>) -> Vec<ProducedRow>;
    once "delayed.cancel" delayed_cancel(stream: StreamId, id: DelayedId) -> bool;
    idempotent "delayed.promote" delayed_promote(params: &PromoteParams) -> PromoteRow;
    once "delayed.heads" delayed_heads(streams: &[StreamId]) -> Vec<(StreamId, DelayedId)>;
    idempotent "idempotency.sweep" idempotency_sweep(params: &SweepParams) -> SweepRow;
    idempotent "message.read" message_read(params: &ReadParams) -> Vec<StoredMessage>;
    once "claim.take" claim_take(params: &ClaimParams) -> ClaimRow;
    idempotent "lease.find" lease_find(stream: StreamId, token: LeaseToken) -> Option<LeaseRow>;
    idempotent "lease.settle" lease_settle(params: &SettleParams) -> bool;
    once "lease.reclaim" lease_reclaim(stream: StreamId, group: GroupId, presence: PresenceId, token: LeaseToken) -> Option<LeaseRow>;
    once "lease.report" lease_report(stream: StreamId, group: GroupId, presence: PresenceId, tokens: &[LeaseToken], progress: &[ProgressParams]) -> Vec<LeaseToken>;
    idempotent "lease.return" lease_return(stream: StreamId, leases: &[ReturnParams]) -> ();
    once "parked.take" parked_take(params: &ClaimParams, versions: &[i32]) -> Option<LeaseRow>;
    once "exception.take" exception_take(params: &ExceptionTakeParams) -> Vec<ExceptionRow>;
    idempotent "exception.settle" exception_settle(params: &ExceptionSettleParams) -> Vec<MessageId>;
    idempotent "key.gate" key_gate(params: &KeyGateParams) -> Vec<KeyGateRow>;
    idempotent "key.ticket" key_ticket(stream: StreamId, group: GroupId, token: LeaseToken, message: MessageId) -> Option<i64>;
    idempotent "lane.read" lane_read(params: &LaneReadParams) -> Vec<StoredMessage>;
    idempotent "lane.list" lane_list(stream: StreamId, group: GroupId, after: Option<&str>, limit: i64) -> Vec<LaneRow>;
    once "lane.move" lane_move(lane: &LaneParams, to: &LaneMove) -> Option<i64>;
    once "lane.bury" lane_bury(lane: &LaneParams, error: &str, successor: Option<(MessageId, u32)>, held_to: i64) -> bool;
    once "lane.end" lane_end(lane: &LaneParams, held_to: i64) -> bool;
    idempotent "exception.return" exception_return(stream: StreamId, group: GroupId, token: LeaseToken) -> ();
    idempotent "exception.due" exception_due(stream: StreamId, group: GroupId) -> Option<Duration>;
    idempotent "letter.list" letter_list(params: &LetterParams) -> Vec<DeadLetterRow>;
    idempotent "letter.count" letter_count(params: &LetterParams, payloads: bool) -> LetterCounts;
    idempotent "letter.read" letter_read(stream: StreamId, group: GroupId, id: MessageId) -> Option<LetterRow>;
    once "letter.redrive" letter_redrive(params: &LetterParams, spread: Duration, now: Option<Timestamp>) -> LetterBatch;
    once "letter.discard" letter_discard(params: &LetterParams, scope: DiscardScope) -> LetterBatch;
    idempotent "replay.look" replay_look(params: &ReplayParams) -> ReplayRow;
    once "replay.move" replay_move(params: &ReplayParams) -> ReplayRow;
    idempotent "replay.pause" replay_pause(stream: StreamId, group: GroupId, length: Option<Duration>) -> ();
    once "delivery.append" delivery_append(stream: StreamId, token: LeaseToken, handled: &[MessageId]) -> ();
    idempotent "delivery.list" delivery_list(stream: StreamId, group: GroupId, message: MessageId, limit: i64) -> Vec<AttemptRow>;
    once "cursor.observe" cursor_observe(stream: StreamId, groups: &[GroupId]) -> ();
    once "cursor.advance" cursor_advance(stream: StreamId, group: GroupId) -> bool;
    once "cursor.stall" cursor_stall(stream: StreamId, group: GroupId) -> Vec<StallCause>;
    idempotent "cursor.position" cursor_position(stream: StreamId, group: GroupId) -> PositionRow;
    idempotent "worker.declare" worker_declare(names: WorkerNames) -> ();
    once "worker.look" worker_look(params: &WorkerLookParams) -> WorkerLookRow;
    once "worker.take" worker_take(owner: PresenceId, workers: &[(WorkerId, WorkerToken)], now: Option<Timestamp>) -> Vec<WorkerToken>;
    idempotent "worker.list" worker_list(now: Option<Timestamp>) -> Vec<WorkerStateRow>;
    idempotent "worker.target" worker_target(id: WorkerId, target: i32) -> bool;
    once "wake.send" wake_send(streams: &[StreamId]) -> ();
    once "wake.wait" wake_wait() -> Vec<StreamId>;
}

impl Store {
    pub(crate) async fn close(&self) {
        self.backend.close().await;
    }
}
