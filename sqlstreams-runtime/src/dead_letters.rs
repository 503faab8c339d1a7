//! Dead letters: found, looked into, redriven and discarded by people.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::backend::{
    DeadLetterFilter, DeadLetterRow, DiscardScope, LetterCountRow, LetterParams, LetterRow, TroubleStatus,
};
use crate::consume::decode::decode;
use crate::consume::{Stalls, trouble};
use crate::error::{Error, Kind};
use crate::group::Group;
use crate::identity::{GroupId, MessageId, StreamId};
use crate::message::{Headers, StoredMessage, Stream};
use crate::store::Store;
use crate::time::Timestamp;

/// Letters a transaction: none of them is locked for long, and no handler waits.
const BATCH: i64 = 1000;

/// The dead letters of group `G`. Made by `Client::dead_letters`; cheap to clone.
///
/// ```
/// # use std::time::Duration;
/// # use sqlstreams_runtime::{DeadLetterFilter, Error, Group, dead_letters::DeadLetters};
/// # async fn example<G: Group>(letters: DeadLetters<G>) -> Result<(), Error> {
/// for group in letters.by_error(&DeadLetterFilter::all(), 10).await? {
///     println!("{} × {}", group.messages, group.error);
/// }
/// // The mail server is back: try these again, over five minutes.
/// let filter = DeadLetterFilter::all().error_starts_with("the mail server");
/// let redriven = letters.redrive(&filter, Duration::from_secs(300)).await?;
/// println!("{} run again, {} have no payload any more", redriven.messages, redriven.without_payload);
/// # Ok(())
/// # }
/// ```
pub struct DeadLetters<G: Group> {
    store: Store,
    stalls: Stalls,
    stream: StreamId,
    group: GroupId,
    payload: PhantomData<fn(&G)>,
}

impl<G: Group> Clone for DeadLetters<G> {
    fn clone(&self) -> Self {
        Self::new(self.store.clone(), self.stalls.clone(), self.stream, self.group)
    }
}

/// Dead letters of one error and one version of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterErrors {
    /// The error.
    pub error: String,
    /// The payload's version.
    pub schema_version: u32,
    /// How many letters.
    pub messages: u64,
    /// The lowest id.
    pub oldest: MessageId,
    /// The highest id.
    pub newest: MessageId,
    /// When the first of them died.
    pub first_died_at: Timestamp,
    /// When the last of them died.
    pub last_died_at: Timestamp,
}

/// What a redrive would do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedrivePlan {
    /// How many letters the filter finds.
    pub messages: u64,
    /// How many of them would stay dead, since their payload is gone.
    pub without_payload: u64,
    /// By error and version, the most frequent first, at most a thousand.
    pub groups: Vec<RedriveGroup>,
}

/// What a redrive would do with the letters of one error and version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedriveGroup {
    /// The error.
    pub error: String,
    /// The payload's version.
    pub schema_version: u32,
    /// Whether this build reads that version; otherwise the messages wait for a build that does.
    pub readable: bool,
    /// How many letters.
    pub messages: u64,
    /// How many of them would stay dead, since their payload is gone.
    pub without_payload: u64,
}

/// What a redrive did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redriven {
    /// How many letters run again.
    pub messages: u64,
    /// How many stay dead, since their payload is gone.
    pub without_payload: u64,
}

impl<G: Group> DeadLetters<G> {
    pub(crate) fn new(store: Store, stalls: Stalls, stream: StreamId, group: GroupId) -> Self {
        Self { store, stalls, stream, group, payload: PhantomData }
    }

    /// At most `limit` letters that `filter` finds, with ids above `after`, by id. The next page begins after the
    /// last one's id.
    ///
    /// # Errors
    /// A database that can't be reached.
    pub async fn list(
        &self,
        filter: &DeadLetterFilter,
        after: MessageId,
        limit: u32,
    ) -> Result<Vec<DeadLetterRow>, Error> {
        let params = LetterParams { after, limit: i64::from(limit), ..self.params(filter) };
        self.store.letter_list(&params).await
    }

    /// The letters that `filter` finds, by error and version: the most frequent first, at most `limit`.
    ///
    /// # Errors
    /// A database that can't be reached.
    pub async fn by_error(&self, filter: &DeadLetterFilter, limit: u32) -> Result<Vec<DeadLetterErrors>, Error> {
        let params = LetterParams { limit: i64::from(limit), ..self.params(filter) };
        let counts = self.store.letter_count(&params, false).await?;
        Ok(counts.groups.into_iter().map(DeadLetterErrors::of).collect())
    }

    /// A message in trouble with its payload: a dead letter, or one that waits for another run. `None` when the
    /// message is not in trouble.
    ///
    /// # Errors
    /// A database that can't be reached.
    pub async fn inspect(&self, id: MessageId) -> Result<Option<Inspected<G::Stream>>, Error> {
        let row = self.store.letter_read(self.stream, self.group, id).await?;
        Ok(row.map(|row| Inspected { row, payload: PhantomData }))
    }

    /// Makes one letter run again, at once; false when it is not dead or its payload is gone. It keeps its policy
    /// and its history, and has all its retries again.
    ///
    /// # Errors
    /// A database that can't be reached: [`Error::outcome_known`] tells whether the letter may be redriven all the
    /// same.
    ///
    /// # Cancellation
    /// A dropped call's letter may or may not be redriven.
    pub async fn redrive_one(&self, id: MessageId) -> Result<bool, Error> {
        let batch = self.store.letter_redrive(&self.one(id), Duration::ZERO, None).await?;
        self.wake();
        Ok(batch.changed > 0)
    }

    /// Makes all letters that `filter` finds run again, each due at a random time within `spread`; durable, a
    /// thousand a transaction. They keep their policy and their history (attempts, failures, first failure, last
    /// error) and have all their retries again; one that fails again as often is dead again. Letters whose payload
    /// is gone stay dead.
    ///
    /// # Errors
    /// A database that can't be reached. The text says how many letters were redriven before; call it again for the
    /// others.
    ///
    /// # Cancellation
    /// A dropped call has redriven the first of the letters, by id, or all.
    pub async fn redrive(&self, filter: &DeadLetterFilter, spread: Duration) -> Result<Redriven, Error> {
        let mut params = self.params(filter);
        let mut redriven = Redriven::default();
        loop {
            let batch = self.store.letter_redrive(&params, spread, None).await;
            let batch = batch.map_err(|err| partly(err, redriven.messages, "redriven"))?;
            redriven.messages += batch.changed.cast_unsigned();
            redriven.without_payload += (batch.found - batch.changed).cast_unsigned();
            self.wake();
            match batch.last {
                Some(last) if batch.found >= BATCH => params.after = last,
                _ => return Ok(redriven),
            }
        }
    }

    /// What [`DeadLetters::redrive`] would do now; changes nothing.
    ///
    /// # Errors
    /// A database that can't be reached.
    pub async fn redrive_dry_run(&self, filter: &DeadLetterFilter) -> Result<RedrivePlan, Error> {
        let counts = self.store.letter_count(&self.params(filter), true).await?;
        Ok(RedrivePlan {
            messages: counts.messages,
            without_payload: counts.messages - counts.stored,
            groups: counts.groups.into_iter().map(RedriveGroup::of::<G::Stream>).collect(),
        })
    }

    /// Removes one message in trouble from the group for good; false when it is not in trouble, or in a state that
    /// `scope` does not cover. The stream keeps it, and other groups handle it.
    ///
    /// # Errors
    /// A database that can't be reached: [`Error::outcome_known`] tells whether the message may be removed all the
    /// same.
    ///
    /// # Cancellation
    /// A dropped call's message may or may not be removed.
    pub async fn discard_one(&self, id: MessageId, scope: DiscardScope) -> Result<bool, Error> {
        let batch = self.store.letter_discard(&self.one(id), scope).await?;
        Ok(batch.changed > 0)
    }

    /// Removes all messages in trouble that `filter` finds from the group for good; durable, a thousand a
    /// transaction; answers how many. The error of one that is not dead is that of its last failure, and a filter by
    /// the time of death finds dead letters only.
    ///
    /// # Errors
    /// A database that can't be reached. The text says how many messages were discarded before; call it again for
    /// the others.
    ///
    /// # Cancellation
    /// A dropped call has discarded the first of the messages, by id, or all.
    pub async fn discard(&self, filter: &DeadLetterFilter, scope: DiscardScope) -> Result<u64, Error> {
        let mut params = self.params(filter);
        let mut discarded = 0;
        loop {
            let batch = self.store.letter_discard(&params, scope).await;
            let batch = batch.map_err(|err| partly(err, discarded, "discarded"))?;
            discarded += batch.changed.cast_unsigned();
            match batch.last {
                Some(last) if batch.found >= BATCH => params.after = last,
                _ => return Ok(discarded),
            }
        }
    }

    fn params(&self, filter: &DeadLetterFilter) -> LetterParams {
        LetterParams {
            stream: self.stream,
            group: self.group,
            filter: filter.clone(),
            after: MessageId(0),
            last: MessageId(i64::MAX),
            limit: BATCH,
        }
    }

    fn one(&self, id: MessageId) -> LetterParams {
        let after = MessageId(id.0.saturating_sub(1));
        LetterParams { after, last: id, ..self.params(&DeadLetterFilter::all()) }
    }

    /// Consumers of this client look at once; others within a second.
    fn wake(&self) {
        trouble(&self.stalls, self.group);
    }
}

/// Says how far a call of several transactions came.
fn partly(err: Error, before: u64, done: &str) -> Error {
    if before == 0 { err } else { err.at(format!("{before} messages were {done} before this")) }
}

impl DeadLetterErrors {
    fn of(row: LetterCountRow) -> Self {
        Self {
            error: row.error,
            schema_version: row.schema_version,
            messages: row.messages,
            oldest: row.oldest,
            newest: row.newest,
            first_died_at: row.first_died_at,
            last_died_at: row.last_died_at,
        }
    }
}

impl RedriveGroup {
    fn of<S: Stream>(row: LetterCountRow) -> Self {
        Self {
            readable: row.schema_version == S::VERSION,
            without_payload: row.messages - row.stored,
            error: row.error,
            schema_version: row.schema_version,
            messages: row.messages,
        }
    }
}

/// A message in trouble and its payload, which its `Debug` does not show.
pub struct Inspected<S: Stream> {
    row: LetterRow,
    payload: PhantomData<fn() -> S>,
}

impl<S: Stream> Inspected<S> {
    /// What is known about the message beside its payload.
    pub fn letter(&self) -> &DeadLetterRow {
        &self.row.letter
    }

    /// Whether it is dead, waits or runs.
    pub fn status(&self) -> TroubleStatus {
        self.row.status
    }

    /// When it was produced, by the database's clock; `None` when the message is gone.
    pub fn created_at(&self) -> Option<Timestamp> {
        self.message().map(|message| message.created_at)
    }

    /// The routing key that it was produced with.
    pub fn routing_key(&self) -> Option<&str> {
        let key = self.message()?.routing_key.as_deref()?;
        std::str::from_utf8(key).ok()
    }

    /// The headers that it was produced with.
    pub fn headers(&self) -> Headers {
        let stored = self.message().and_then(|message| message.headers.as_deref());
        stored.and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default()
    }

    /// The payload as it is stored; `None` when retention removed it.
    pub fn payload(&self) -> Option<&[u8]> {
        self.message()?.payload.as_deref()
    }

    /// The payload as the group's handler gets it.
    ///
    /// # Errors
    /// A payload that is gone, that is of a version that this build does not read, or that does not decode: with the
    /// failing path and the rule, and without its values.
    pub fn decode(&self) -> Result<S, Error> {
        let id = self.row.letter.id;
        let Some(message) = self.message() else {
            return Err(Error::new(
                Kind::Message,
                "SQLS-0500",
                format!("message {id} of stream \"{}\" is not stored any more - discard its dead letter", S::NAME),
            ));
        };
        if message.schema_version != S::VERSION {
            return Err(Error::new(
                Kind::Message,
                "SQLS-0501",
                format!(
                    "message {id} of stream \"{}\" has version {}, and this build reads version {} - inspect it with a \
                     build that reads it, or take its payload as it is stored",
                    S::NAME,
                    message.schema_version,
                    S::VERSION
                ),
            ));
        }
        decode(message).map_err(|rule| {
            Error::new(
                Kind::Message,
                "SQLS-0502",
                format!(
                    "message {id} of stream \"{}\" does not decode: {rule} - take its payload as it is stored",
                    S::NAME
                ),
            )
        })
    }

    fn message(&self) -> Option<&StoredMessage> {
        self.row.message.as_ref()
    }
}

impl<S: Stream> fmt::Debug for Inspected<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspected")
            .field("letter", &self.row.letter)
            .field("status", &self.row.status)
            .field("message", &self.row.message)
            .finish()
    }
}
