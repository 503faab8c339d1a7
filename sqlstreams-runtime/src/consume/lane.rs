//! Runs the lane of a key in trouble: its messages one after the other, in order.

use std::sync::Arc;
use std::time::Duration;

use super::dispatch::{Deadline, dispatch, rest};
use super::exception::MAX_KILLS;
use super::gate;
use super::session::Session;
use super::signal::Signal;
use crate::backend::{ExceptionNext, ExceptionRow, LaneMove, LaneParams, LaneReadParams};
use crate::delivery::Delivery;
use crate::error::{Error, Recovery};
use crate::identity::{LeaseToken, MessageId};
use crate::message::StoredMessage;

/// Messages that a lane reads at once. After so many its progress is stored.
const PAGE: i64 = 100;
/// Pages until other messages in trouble get their turn.
const PAGES: usize = 10;
const AFTER_ERROR: Duration = Duration::from_millis(200);
/// When a lane looks again that lets another message of its key go first.
const AFTER_TICKET: Duration = Duration::from_millis(30);

/// A lane that this process runs.
struct Lane<'a> {
    session: &'a Arc<Session>,
    token: LeaseToken,
    key: String,
    bindings: Arc<Vec<String>>,
    /// Where the stored row stands.
    at: MessageId,
    held_to: i64,
    /// Its messages up to this id were handed out before the group was rewound.
    replay_until: Option<i64>,
    /// It killed a process: the row stands at each message before that runs, so that the one to blame is found.
    careful: bool,
}

/// How a message's run ended.
enum Step {
    /// Its key goes on with the next message.
    Done,
    /// The lane's row says what comes, or belongs to somebody else.
    Over,
}

/// Runs the lane that `row` stands for, until it ends, comes into trouble, or had its turn.
pub(crate) async fn run(session: &Arc<Session>, token: LeaseToken, row: ExceptionRow, dropped: &Signal) {
    let (Some(held_to), Some(key)) = (row.held_to, row.message_key.clone()) else { return };
    let mut lane = Lane {
        session,
        token,
        key,
        bindings: Arc::default(),
        at: row.id,
        held_to,
        replay_until: row.replay_until,
        careful: row.kills > 0,
    };
    let Err(err) = lane.turn(row, dropped).await else { return };
    tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
        "running the messages of a key in trouble; some of them may be handled again");
    // The row is this process's as long as it lives, so it must be given back as soon as that works.
    let to = LaneMove { to: lane.at, schema_version: 0, next: Some(ExceptionNext::Return) };
    while !session.closing.is_raised() {
        match session.store.lane_move(&lane.params(), &to).await {
            Err(err) if err.recovery() == Recovery::Transient => tokio::time::sleep(AFTER_ERROR).await,
            _ => return,
        }
    }
}

impl Lane<'_> {
    async fn turn(&mut self, row: ExceptionRow, dropped: &Signal) -> Result<(), Error> {
        self.bindings = self.session.bindings_of_claim().await?;
        if gate::is_ticketed(self.session, &self.key, self.at).await? {
            // A redriven message of the key: both are marked by now, so that one of them sees the other.
            let after = AFTER_TICKET.mul_f64(rand::random_range(0.5..1.5));
            let to = LaneMove { to: self.at, schema_version: 0, next: Some(ExceptionNext::Wait { after }) };
            return self.session.store.lane_move(&self.params(), &to).await.map(drop);
        }
        let mut last = row.id.0;
        if matches!(self.head(row, dropped).await?, Step::Over) {
            return Ok(());
        }
        for _ in 0..PAGES {
            let page = self.read(last, PAGE).await?;
            if page.is_empty() {
                if self.end().await? {
                    return Ok(());
                }
                continue;
            }
            for (place, message) in page.into_iter().enumerate() {
                last = message.id.0;
                if (place == 0 || self.careful) && !self.go(&message, None).await? {
                    return Ok(());
                }
                if matches!(self.fresh(message, dropped).await?, Step::Over) {
                    return Ok(());
                }
            }
        }
        self.pause(last).await
    }

    /// Others have waited long enough: leaves the rest to whoever comes next.
    async fn pause(&mut self, last: i64) -> Result<(), Error> {
        loop {
            if let Some(next) = self.read(last, 1).await?.first() {
                return self.go(next, Some(ExceptionNext::Return)).await.map(drop);
            }
            if self.end().await? {
                return Ok(());
            }
        }
    }

    fn params(&self) -> LaneParams {
        LaneParams { stream: self.session.stream, group: self.session.group, token: self.token, at: self.at, now: None }
    }

    /// Runs the message that the row stands at, with what was counted for it.
    async fn head(&mut self, row: ExceptionRow, dropped: &Signal) -> Result<Step, Error> {
        let Some(message) = row.message else {
            return self.bury(row.id.0, "the stream does not hold the message any more").await;
        };
        if row.kills >= MAX_KILLS {
            let error = format!("the process that handled it was lost {} times", row.kills);
            return self.bury(row.id.0, &error).await;
        }
        let counted = [row.attempts, row.failures, row.delays].map(|count| count.max(0).cast_unsigned());
        self.handle(message, counted, dropped).await
    }

    async fn fresh(&mut self, message: StoredMessage, dropped: &Signal) -> Result<Step, Error> {
        if !self.session.reads(message.schema_version) {
            // Waits, with its key, for a build that reads it.
            self.go(&message, Some(ExceptionNext::Return)).await?;
            return Ok(Step::Over);
        }
        self.handle(message, [0; 3], dropped).await
    }

    async fn handle(
        &mut self,
        message: StoredMessage,
        [attempts, failures, delays]: [u32; 3],
        dropped: &Signal,
    ) -> Result<Step, Error> {
        let session = self.session;
        if session.closing.is_raised() || dropped.is_raised() {
            self.go(&message, Some(ExceptionNext::Return)).await?;
            return Ok(Step::Over);
        }
        let delivery = Delivery {
            message: message.clone(),
            stream: Arc::clone(&session.stream_name),
            group: Arc::clone(&session.group_name),
            attempts,
            failures,
            delays,
            progress: Arc::default(),
            replay: self.replay_until >= Some(message.id.0),
        };
        let deadline = Deadline::new(session.timeout, message.id, Arc::clone(&delivery.progress));
        let verdict = match dispatch(session, delivery) {
            Ok(handling) => rest(handling, deadline, dropped).await,
            Err(verdict) => Some(verdict),
        };
        let next = verdict.map_or(ExceptionNext::Return, |verdict| session.next_after(verdict, failures));
        match &next {
            ExceptionNext::Done => {
                session.counts.count(&next);
                Ok(Step::Done)
            }
            ExceptionNext::Dead { error } => {
                if self.at != message.id && !self.go(&message, None).await? {
                    return Ok(Step::Over);
                }
                session.counts.count(&next);
                self.bury(message.id.0, error).await
            }
            _ => {
                if self.go(&message, Some(next.clone())).await? {
                    session.counts.count(&next);
                }
                Ok(Step::Over)
            }
        }
    }

    /// Moves the row to `message`; false when it belongs to somebody else by now.
    async fn go(&mut self, message: &StoredMessage, next: Option<ExceptionNext>) -> Result<bool, Error> {
        let to = LaneMove { to: message.id, schema_version: message.schema_version, next };
        let moved = self.session.store.lane_move(&self.params(), &to).await?;
        if let Some(held_to) = moved {
            (self.at, self.held_to) = (message.id, held_to);
        }
        Ok(moved.is_some())
    }

    /// Makes the message that the row stands at a dead letter; its successor becomes the lane.
    async fn bury(&mut self, id: i64, error: &str) -> Result<Step, Error> {
        loop {
            let successor = self.read(id, 1).await?.first().map(|next| (next.id, next.schema_version));
            let store = &self.session.store;
            if store.lane_bury(&self.params(), error, successor, self.held_to).await? || !self.look().await? {
                self.session.trouble.notify_one();
                return Ok(Step::Over);
            }
        }
    }

    /// Ends the lane; false when there are more messages in it.
    async fn end(&mut self) -> Result<bool, Error> {
        Ok(self.session.store.lane_end(&self.params(), self.held_to).await? || !self.look().await?)
    }

    /// Learns where the lane ends now; false when it belongs to somebody else.
    async fn look(&mut self) -> Result<bool, Error> {
        let to = LaneMove { to: self.at, schema_version: 0, next: None };
        let held_to = self.session.store.lane_move(&self.params(), &to).await?;
        self.held_to = held_to.unwrap_or(self.held_to);
        Ok(held_to.is_some())
    }

    async fn read(&self, after: i64, limit: i64) -> Result<Vec<StoredMessage>, Error> {
        let session = self.session;
        let params = LaneReadParams {
            stream: session.stream,
            message_key: self.key.clone(),
            after,
            held_to: self.held_to,
            limit,
            versions: session.versions.clone(),
            bindings: self.bindings.to_vec(),
        };
        session.store.lane_read(&params).await
    }
}
