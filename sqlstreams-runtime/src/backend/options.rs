//! What the port takes and answers about messages that are produced at most once, later, or both.

use std::time::Duration;

use bytes::Bytes;

use crate::identity::{DelayedId, MessageId, StreamId};
use crate::message::ProduceItem;
use crate::time::Timestamp;

/// The code of an error of `message_produce_with`: another transaction held a key for longer than the patience.
pub(crate) const KEY_HELD: &str = "SQLS-0224";

/// Messages that are to be produced at most once, later, or both.
#[derive(Clone, Copy, Debug)]
pub struct ProduceWithParams<'a> {
    /// The stream.
    pub stream: StreamId,
    /// The payload's version.
    pub version: u32,
    /// The number of the payload's codec.
    pub codec: i16,
    /// The messages. No key stands twice among them.
    pub messages: &'a [ProduceItem],
    /// How long to wait for another transaction that holds one of the keys; as the connection has it when `None`.
    pub patience: Option<Duration>,
    /// The time, for tests; the database's clock otherwise.
    pub now: Option<Timestamp>,
}

/// What a message was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProducedRow {
    /// It is in the log.
    Message(MessageId),
    /// It waits for its time.
    Delayed {
        /// Its id until then.
        id: DelayedId,
        /// How long it waits from now.
        wait: Duration,
    },
    /// A message with the same key and the same payload was produced before; this one is not stored.
    Duplicate(FirstRow),
    /// A message with the same key and another payload was produced before; this one is not stored.
    Conflict {
        /// The first one.
        first: FirstRow,
        /// Its payload, unless it is gone.
        payload: Option<Bytes>,
    },
}

/// The first message with an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstRow {
    /// It is, or was, in the log.
    Message(MessageId),
    /// It waits for its time.
    Delayed(DelayedId),
}

/// A promotion of delayed messages.
#[derive(Clone, Copy, Debug)]
pub struct PromoteParams {
    /// The stream.
    pub stream: StreamId,
    /// What was due before this time is left out: it was promoted earlier.
    pub since: Option<Timestamp>,
    /// At most this many.
    pub limit: i64,
    /// The time, for tests.
    pub now: Option<Timestamp>,
}

/// What a promotion did and saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromoteRow {
    /// How many messages entered the log.
    pub promoted: i64,
    /// When the last of them was due.
    pub reached: Option<Timestamp>,
    /// The time until the next message is due.
    pub next: Option<Duration>,
}

/// A sweep of expired idempotency keys.
#[derive(Clone, Copy, Debug)]
pub struct SweepParams {
    /// The stream.
    pub stream: StreamId,
    /// What expired before this time is left out: it was swept earlier.
    pub since: Option<Timestamp>,
    /// At most this many.
    pub limit: i64,
    /// The time, for tests.
    pub now: Option<Timestamp>,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepRow {
    /// How many keys went.
    pub swept: i64,
    /// When the last of them expired.
    pub reached: Option<Timestamp>,
}
