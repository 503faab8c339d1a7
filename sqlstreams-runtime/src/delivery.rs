//! What a handler learns about the message beside its payload.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::identity::MessageId;
use crate::message::{Headers, StoredMessage};
use crate::time::Timestamp;

/// One run of a handler for one message. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub(crate) message: StoredMessage,
    pub(crate) stream: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) attempts: u32,
    pub(crate) failures: u32,
    pub(crate) delays: u32,
    pub(crate) replay: bool,
    pub(crate) progress: Arc<Progress>,
}

/// When handlers last said that they are at work. Shared by the messages of a range, so that it costs no allocation a
/// message.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    last: Mutex<HashMap<MessageId, Instant>>,
}

impl Progress {
    fn note(&self, message: MessageId, now: Instant) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(message, now);
    }

    pub(crate) fn last(&self, message: MessageId) -> Option<Instant> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(&message).copied()
    }
}

impl Delivery {
    /// The message's id.
    pub fn message_id(&self) -> MessageId {
        self.message.id
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The routing key that the message was produced with.
    pub fn routing_key(&self) -> Option<&str> {
        text(&self.message.routing_key)
    }

    /// The message key that the message was produced with.
    pub fn message_key(&self) -> Option<&str> {
        text(&self.message.message_key)
    }

    /// The headers that the message was produced with.
    pub fn headers(&self) -> Headers {
        let stored = self.message.headers.as_deref();
        stored.and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default()
    }

    /// The payload's version as stored.
    pub fn schema_version(&self) -> u32 {
        self.message.schema_version
    }

    /// When the message was produced, by the database's clock.
    pub fn created_at(&self) -> Timestamp {
        self.message.created_at
    }

    /// For when the message was scheduled; `None` for one that was not delayed. It entered the stream's log then or
    /// a little later.
    pub fn scheduled_at(&self) -> Option<Timestamp> {
        self.message.scheduled_at
    }

    /// Runs whose outcome was recorded before this one: 0 for the first.
    pub fn attempt(&self) -> u32 {
        self.attempts
    }

    /// Failures before this run and since the last redrive, without the delays that a handler asked for.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether the group was rewound, and had been given this message before. It may have been handled then, or not.
    pub fn is_replay(&self) -> bool {
        self.replay
    }

    /// How often a handler asked for `Later` before this run.
    pub fn delays(&self) -> u32 {
        self.delays
    }

    /// Says that the handler is at work: its timeout begins anew. A handler whose work has steps calls it after each,
    /// and its group can declare a timeout for a step instead of one for the whole.
    pub fn progress(&self) {
        self.progress.note(self.message.id, Instant::now());
    }
}

fn text(bytes: &Option<bytes::Bytes>) -> Option<&str> {
    bytes.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok())
}
