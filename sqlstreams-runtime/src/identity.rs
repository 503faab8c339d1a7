//! Identities. A bare integer or string never crosses the backend port.

use std::fmt;

use uuid::Uuid;

macro_rules! integer_identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

integer_identity! {
    /// A message's place in its stream's log: rising, with gaps, never used twice.
    MessageId
}
integer_identity! {
    /// A registered stream; the suffix of its tables.
    StreamId
}
integer_identity! {
    /// A registered consumer group.
    GroupId
}
integer_identity! {
    /// A message that waits for its time: by it the message can be cancelled. When it enters its stream's log it
    /// gets a [`MessageId`].
    DelayedId
}
integer_identity! {
    /// A maintenance task of one stream or one group.
    WorkerId
}

macro_rules! token_identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Mints a new one. Time-ordered, so that index entries go to the right edge.
            pub fn mint() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

token_identity! {
    /// Proof of ownership of a range lease or of an exception that is being handled. Minted by the
    /// claimer, so that a claim whose answer was lost can be found again.
    LeaseToken
}
token_identity! {
    /// One consuming process.
    PresenceId
}
token_identity! {
    /// Proof that a process runs a worker. Minted by the process, so that an election whose answer was lost shows.
    WorkerToken
}

/// Sixteen bytes of a hash: of an idempotency key, or of a payload. What was hashed is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 16]);

/// A stream's name, checked against the naming rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamName(String);

/// A consumer group's name, checked against the naming rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupName(String);

impl StreamName {
    /// Checks and keeps `name`.
    ///
    /// # Errors
    /// The rule that `name` breaks.
    pub fn new(name: impl Into<String>) -> Result<Self, sqlstreams_schema::NameProblem> {
        let name = name.into();
        sqlstreams_schema::check_stream_name(&name)?;
        Ok(Self(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl GroupName {
    /// Checks and keeps `name`.
    ///
    /// # Errors
    /// The rule that `name` breaks.
    pub fn new(name: impl Into<String>) -> Result<Self, sqlstreams_schema::NameProblem> {
        let name = name.into();
        sqlstreams_schema::check_group_name(&name)?;
        Ok(Self(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
