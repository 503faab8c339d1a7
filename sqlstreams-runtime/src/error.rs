//! The one error type of the public API.

use std::error::Error as StdError;
use std::fmt;

/// What went wrong, coarsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The database can't be reached, or ended the connection.
    Unavailable,
    /// The database was busy for longer than we wait.
    Busy,
    /// A transaction collided with another one and was rolled back.
    Conflict,
    /// The client's options don't fit what stands between it and the database.
    Configuration,
    /// A declaration contradicts what is stored, or another build's.
    Declaration,
    /// The installation is missing, or its migrations don't fit this build.
    Migration,
    /// A message can't be produced as it is.
    Message,
    /// The database role lacks a right.
    Permission,
    /// The call was abandoned because the client is shutting down.
    Shutdown,
    /// The database answered something that this crate does not expect.
    Database,
}

/// Whether the same call can succeed when nothing else changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// An unchanged retry can succeed.
    Transient,
    /// An unchanged retry can't succeed.
    Permanent,
}

/// An error of this crate. Says what is wrong and the way out; never shows a payload.
pub struct Error {
    kind: Kind,
    recovery: Recovery,
    code: &'static str,
    text: String,
    outcome_known: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: Kind, code: &'static str, text: impl Into<String>) -> Self {
        let recovery = match kind {
            Kind::Unavailable | Kind::Busy | Kind::Conflict => Recovery::Transient,
            _ => Recovery::Permanent,
        };
        Self { kind, recovery, code, text: text.into(), outcome_known: true, source: None }
    }

    pub(crate) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Marks that the statement may have been carried out although no answer came.
    pub(crate) fn ambiguous(mut self) -> Self {
        self.outcome_known = false;
        self
    }

    /// Takes [`Error::ambiguous`] back: no statement was sent.
    pub(crate) fn unsent(mut self) -> Self {
        self.outcome_known = true;
        self
    }

    /// Says where, before what.
    pub(crate) fn at(mut self, place: String) -> Self {
        self.text = format!("{place}: {}", self.text);
        self
    }

    /// What went wrong, coarsely.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether an unchanged retry can succeed.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// A code that stays the same over versions, for example `SQLS-0201`.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Whether it is certain that nothing was changed. `false` when the connection broke before the
    /// answer: the messages may or may not be in the stream.
    pub fn outcome_known(&self) -> bool {
        self.outcome_known
    }

    /// Shares one failure of a grouped statement with every caller that was part of it.
    pub(crate) fn share(&self) -> Self {
        Self {
            kind: self.kind,
            recovery: self.recovery,
            code: self.code,
            text: match &self.source {
                Some(source) => format!("{}: {source}", self.text),
                None => self.text.clone(),
            },
            outcome_known: self.outcome_known,
            source: None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.text, self.code)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind)
            .field("recovery", &self.recovery)
            .field("code", &self.code)
            .field("text", &self.text)
            .field("outcome_known", &self.outcome_known)
            .field("source", &self.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn StdError + 'static))
    }
}
