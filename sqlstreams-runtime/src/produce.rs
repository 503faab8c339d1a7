//! Producing: encoding a payload, sharing inserts between concurrent calls, idempotency keys, delays.

use crate::identity::{DelayedId, MessageId};

pub(crate) mod encode;
pub(crate) mod fold;
pub(crate) mod grouping;
mod options;
pub(crate) mod payload;

pub use options::ProduceOptions;

/// What became of a payload that was produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Produced {
    /// It is in the stream.
    Message(MessageId),
    /// It waits for its time, and can be cancelled until then.
    Delayed(DelayedId),
    /// A message with the same idempotency key and the same payload was produced before: nothing was stored.
    Duplicate(First),
}

/// The message that an idempotency key was used for first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// It is in the stream, unless retention has removed it.
    Message(MessageId),
    /// It waits for its time.
    Delayed(DelayedId),
}

impl Produced {
    /// The message's id in the stream, or that of the first one with its key; `None` for one that waits for its time.
    pub fn message_id(&self) -> Option<MessageId> {
        match self {
            Self::Message(id) | Self::Duplicate(First::Message(id)) => Some(*id),
            Self::Delayed(_) | Self::Duplicate(First::Delayed(_)) => None,
        }
    }

    /// The id to cancel the message by, or the first one with its key; `None` for one that does not wait.
    pub fn delayed_id(&self) -> Option<DelayedId> {
        match self {
            Self::Delayed(id) | Self::Duplicate(First::Delayed(id)) => Some(*id),
            Self::Message(_) | Self::Duplicate(First::Message(_)) => None,
        }
    }

    /// Whether the same message was produced before.
    pub fn is_duplicate(&self) -> bool {
        matches!(self, Self::Duplicate(_))
    }
}
