//! What a message is: the traits that declarations implement, and the stored form.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use sqlstreams_schema::{Route, SegmentProblem};
use uuid::Uuid;

use crate::identity::{Digest, MessageId};
use crate::time::Timestamp;

/// A payload type together with the stream that it travels on. Implemented by `#[derive(Stream)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stream's payload",
    label = "add `#[derive(Stream)]` and `#[stream(name = \"…\", version = 1)]` to `{Self}`"
)]
pub trait Stream:
    serde::Serialize + serde::de::DeserializeOwned + schemars::JsonSchema + Send + Sync + 'static
{
    /// The stream's name.
    const NAME: &'static str;
    /// The payload's version, from 1.
    const VERSION: u32;
    /// The template of the stream's routing keys, [`Route::NONE`] without one.
    const ROUTE: Route;
    /// The field that is the message key.
    const KEY: Option<&'static str>;

    /// The routing key of this payload; `None` for a stream without a route.
    ///
    /// # Errors
    /// Names the field whose text can't be a segment of a routing key.
    fn routing_key(&self) -> Result<Option<String>, SegmentError>;

    /// The message key of this payload; `None` for a stream without one.
    fn message_key(&self) -> Option<String>;

    /// The field that is the idempotency key.
    const IDEMPOTENCY_KEY: Option<&'static str> = None;

    /// The idempotency key of this payload: of the messages with one, the stream takes the first. `None` for a
    /// stream that declares none.
    fn idempotency_key(&self) -> Option<String> {
        None
    }
}

/// A type whose values can stand between two dots of a routing key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a segment of a routing key",
    label = "a field named in `route` needs a type that implements `RouteSegment`",
    note = "strings, integers, `bool` and `Uuid` implement it; add `#[derive(RouteSegment)]` to an enum or a newtype of your own"
)]
pub trait RouteSegment {
    /// All values, where they are known at compile time.
    const VALUES: Option<&'static [&'static str]>;

    /// This value as it stands in a routing key.
    fn segment(&self) -> Cow<'_, str>;
}

/// A type whose values can be a message key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a message key",
    label = "a field named in `key` or `idempotency_key` needs a type that implements `MessageKey`",
    note = "strings, integers and `Uuid` implement it; add `#[derive(MessageKey)]` to a newtype of your own; an `Option` can't be a key, since every message of a keyed stream has one"
)]
pub trait MessageKey {
    /// This value as a message key.
    fn message_key(&self) -> Cow<'_, str>;
}

macro_rules! text_identity {
    ($($type:ty),*) => {$(
        impl RouteSegment for $type {
            const VALUES: Option<&'static [&'static str]> = None;
            fn segment(&self) -> Cow<'_, str> { Cow::Borrowed(self) }
        }
        impl MessageKey for $type {
            fn message_key(&self) -> Cow<'_, str> { Cow::Borrowed(self) }
        }
    )*};
}

macro_rules! printed_identity {
    ($($type:ty),*) => {$(
        impl RouteSegment for $type {
            const VALUES: Option<&'static [&'static str]> = None;
            fn segment(&self) -> Cow<'_, str> { Cow::Owned(self.to_string()) }
        }
        impl MessageKey for $type {
            fn message_key(&self) -> Cow<'_, str> { Cow::Owned(self.to_string()) }
        }
    )*};
}

text_identity!(String, Box<str>);
printed_identity!(i8, i16, i32, i64, i128, u8, u16, u32, u64, u128, Uuid);

impl RouteSegment for bool {
    const VALUES: Option<&'static [&'static str]> = Some(&["true", "false"]);
    fn segment(&self) -> Cow<'_, str> {
        Cow::Borrowed(if *self { "true" } else { "false" })
    }
}

/// A field's text that can't be a segment of a routing key. The text itself is payload and not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentError {
    stream: &'static str,
    field: &'static str,
    problem: SegmentProblem,
}

impl SegmentError {
    /// Says that `field` of a payload of `stream` has `problem`.
    pub fn new(stream: &'static str, field: &'static str, problem: SegmentProblem) -> Self {
        Self { stream, field, problem }
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "field `{}` of a message for stream \"{}\" can't stand in its routing key: {}",
            self.field, self.stream, self.problem
        )
    }
}

impl std::error::Error for SegmentError {}

/// Names and values that travel beside a payload, for example a trace context.
pub type Headers = BTreeMap<String, String>;

/// How a payload is written in its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// JSON text, in the column that `psql` users can query.
    Json,
}

impl Codec {
    /// The number in the row.
    pub fn number(self) -> i16 {
        match self {
            Self::Json => 0,
        }
    }

    /// The codec of a stored number.
    pub fn from_number(number: i16) -> Option<Self> {
        (number == 0).then_some(Self::Json)
    }
}

/// A message before it has an id. Its `Debug` shows no payload and no headers.
#[derive(Clone)]
pub struct NewMessage {
    /// The encoded payload; JSON text for [`Codec::Json`].
    pub payload: String,
    /// The routing key, for streams with a route.
    pub routing_key: Option<String>,
    /// The message key, for streams with a key.
    pub message_key: Option<String>,
    /// The headers as a JSON object.
    pub headers: Option<String>,
}

impl NewMessage {
    /// Bytes that go over the wire, nearly.
    pub fn size(&self) -> usize {
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.payload.len() + optional(&self.routing_key) + optional(&self.message_key) + optional(&self.headers)
    }
}

/// When a message is to be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deliver {
    /// As soon as it is committed.
    Now,
    /// That much later, by the database's clock.
    After(Duration),
    /// At a time, by the database's clock; at once when it has passed.
    At(Timestamp),
}

/// A message that is to be produced at most once, later, or both.
#[derive(Clone, Debug)]
pub struct ProduceItem {
    /// The message.
    pub message: NewMessage,
    /// The hash of its idempotency key.
    pub key: Option<Digest>,
    /// The hash of its payload, which tells whether another message with the same key is the same.
    pub payload_hash: Digest,
    /// When it is to be delivered.
    pub deliver: Deliver,
    /// How long its key counts, from when it is to be delivered.
    pub keep: Duration,
}

/// A message as the log holds it. Its `Debug` shows no payload and no headers.
#[derive(Clone)]
pub struct StoredMessage {
    /// Its id.
    pub id: MessageId,
    /// When the producing transaction began.
    pub created_at: Timestamp,
    /// For when it was scheduled; `None` for a message that was not delayed.
    pub scheduled_at: Option<Timestamp>,
    /// The payload's version.
    pub schema_version: u32,
    /// The payload's codec, as stored.
    pub codec: i16,
    /// The routing key.
    pub routing_key: Option<Bytes>,
    /// The message key.
    pub message_key: Option<Bytes>,
    /// The headers, JSON.
    pub headers: Option<Bytes>,
    /// The encoded payload; `None` where this build can't read the version and did not ask for it.
    pub payload: Option<Bytes>,
}

/// How many bytes there are, for a `Debug` that shows none of them.
struct Hidden(Option<usize>);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "<{bytes} bytes>"),
            None => f.write_str("None"),
        }
    }
}

impl fmt::Debug for NewMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMessage")
            .field("payload", &Hidden(Some(self.payload.len())))
            .field("routing_key", &self.routing_key)
            .field("message_key", &self.message_key)
            .field("headers", &Hidden(self.headers.as_ref().map(String::len)))
            .finish()
    }
}

impl fmt::Debug for StoredMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredMessage")
            .field("id", &self.id)
            .field("created_at", &self.created_at)
            .field("schema_version", &self.schema_version)
            .field("codec", &self.codec)
            .field("routing_key", &self.routing_key)
            .field("message_key", &self.message_key)
            .field("headers", &Hidden(self.headers.as_ref().map(Bytes::len)))
            .field("payload", &Hidden(self.payload.as_ref().map(Bytes::len)))
            .finish()
    }
}
