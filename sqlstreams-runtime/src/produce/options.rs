//! What a call can say beside the payload.

use std::time::Duration;

use super::encode::{check_key, encode};
use super::payload;
use crate::error::{Error, Kind};
use crate::identity::Digest;
use crate::message::{Deliver, Headers, ProduceItem, Stream};
use crate::time::Timestamp;

/// How long an idempotency key counts unless a call says otherwise.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// Whoever needs more keeps the message elsewhere.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
const LONGEST_KEY: usize = 64 * 1024;

/// What a call to produce says beside the payload.
///
/// ```
/// # use std::time::Duration;
/// # use sqlstreams_runtime::ProduceOptions;
/// let options = ProduceOptions::new().idempotency_key("request 17").deliver_after(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ProduceOptions {
    headers: Option<Headers>,
    idempotency_key: Option<String>,
    keep: Option<Duration>,
    deliver: Option<Deliver>,
}

impl ProduceOptions {
    /// Nothing said.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names and values that travel beside the payload.
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = Some(headers);
        self
    }

    /// Of the messages that are produced to the stream with this key, it takes the first. A later one with the same
    /// payload is a duplicate and is answered with the first one's id; one with another payload is refused. Headers
    /// and times are not compared. Replaces the key that the payload declares.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// How long the idempotency key counts at least: 24 hours unless set. A delayed message's counts from when it is
    /// due.
    pub fn keep_key_for(mut self, keep: Duration) -> Self {
        self.keep = Some(keep);
        self
    }

    /// Lets the message wait, by the database's clock, before it enters the stream.
    pub fn deliver_after(mut self, wait: Duration) -> Self {
        self.deliver = Some(Deliver::After(wait));
        self
    }

    /// Lets the message wait for a time, by the database's clock, before it enters the stream. One that has passed
    /// is no wait.
    pub fn deliver_at(mut self, time: impl Into<Timestamp>) -> Self {
        self.deliver = Some(Deliver::At(time.into()));
        self
    }

    /// The item to be stored for `payload`.
    pub(crate) fn apply<S: Stream>(&self, payload: &S) -> Result<ProduceItem, Error> {
        let message = encode(payload, self.headers.as_ref())?;
        let deliver = self.deliver.unwrap_or(Deliver::Now);
        check_deliver(S::NAME, deliver)?;
        let keep = self.keep.unwrap_or(KEEP).min(LONGEST);
        let declared = || payload.idempotency_key();
        let Some(key) = self.idempotency_key.clone().or_else(declared) else {
            return Ok(ProduceItem { message, key: None, payload_hash: Digest([0; 16]), deliver, keep });
        };
        check_key(S::NAME, "idempotency key", Some(&key), LONGEST_KEY)?;
        let payload_hash = payload::hash(&message.payload);
        Ok(ProduceItem { message, key: Some(payload::digest(key.as_bytes())), payload_hash, deliver, keep })
    }

    /// Whether a payload without a key of its own needs no more than a plain insert.
    pub(crate) fn is_plain(item: &ProduceItem) -> bool {
        item.key.is_none() && item.deliver == Deliver::Now
    }
}

fn check_deliver(stream: &str, deliver: Deliver) -> Result<(), Error> {
    let too_far = match deliver {
        Deliver::Now => false,
        Deliver::After(wait) => wait > LONGEST,
        Deliver::At(time) => time > Timestamp(0).plus(LONGEST * 2),
    };
    if !too_far {
        return Ok(());
    }
    Err(Error::new(
        Kind::Message,
        "SQLS-0222",
        format!("a message for stream \"{stream}\" is to be delivered in more than 100 years - choose a time before"),
    ))
}
