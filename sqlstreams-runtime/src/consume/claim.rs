//! The claim loop of one group: keeps the runners supplied, and ends clean leases in passing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::range::{Range, contains};
use super::session::{Session, lock};
use super::stall::{STALL_AFTER, Stall, Waits};
use super::{gate, presence};
use crate::backend::{ClaimParams, ClaimRow, LeaseRow, ReadParams, ReturnParams};
use crate::error::{Error, Kind, Recovery};
use crate::identity::LeaseToken;
use crate::message::StoredMessage;

/// How long an idle claim loop sleeps without news: longer each time, up to a second. Hints make it shorter;
/// correctness rests on this alone.
const FIRST_IDLE: Duration = Duration::from_millis(50);
const LONGEST_IDLE: Duration = Duration::from_secs(1);
/// First and longest wait for transactions that may still fill claimed ids.
const FIRST_PENDING: Duration = Duration::from_micros(300);
const LONGEST_PENDING: Duration = Duration::from_millis(20);
const AFTER_ERROR: Duration = Duration::from_millis(250);

/// What the loop does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Step again at once.
    Again,
    /// Wait for news, at most this long.
    Wait(Duration),
}

/// The loop's own state between steps.
pub(crate) struct Claimer {
    session: Arc<Session>,
    waits: Waits,
    pending: Duration,
    idle: Duration,
    reading: Reading,
}

impl Claimer {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session, waits: Waits::default(), pending: FIRST_PENDING, idle: FIRST_IDLE, reading: Reading::default() }
    }

    /// Claims until the session closes. Ends early with an error that no retry can mend.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let session = Arc::clone(&self.session);
        while !session.closing.is_raised() {
            let next = match self.step().await {
                Ok(next) => next,
                Err(err) if err.recovery() == Recovery::Permanent => return Err(err),
                Err(err) => {
                    tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                        "claiming; trying again");
                    Next::Wait(AFTER_ERROR)
                }
            };
            if let Next::Wait(longest) = next {
                tokio::select! {
                    () = session.news.notified() => {}
                    () = tokio::time::sleep(longest) => {}
                    () = session.closing.raised() => {}
                }
            }
        }
        while self.reading.oldest().await? {}
        Ok(())
    }

    /// One claim, and the reading of what it took.
    pub(crate) async fn step(&mut self) -> Result<Next, Error> {
        let session = Arc::clone(&self.session);
        self.reading.finished().await?;
        let width = if self.has_room() { lock(&session.pace).width() } else { 0 };
        if width == 0 && !session.has_settled() {
            // A range that is being read may hold less than it could: look again when it is there.
            if self.reading.oldest().await? {
                return Ok(Next::Again);
            }
            return Ok(Next::Wait(LONGEST_IDLE));
        }
        let settled = session.take_settled();
        let token = session.mint();
        let params = ClaimParams {
            stream: session.stream,
            group: session.group,
            presence: session.presence,
            token,
            width,
            settled: settled.clone(),
            durable: session.keys().is_some(),
        };
        let row = match session.store.claim_take(&params).await {
            Ok(row) => row,
            Err(err) => {
                session.put_settled_back(settled);
                recover(&session, token, err).await?;
                return Ok(Next::Again);
            }
        };
        for token in settled {
            session.forget(token);
        }
        if row.missing {
            session.forget(token);
            return Err(missing(&session));
        }
        if session.was_moved(row.epoch)
            && let Err(err) = self.let_go().await
        {
            // Unlisted from now on, so others get it.
            session.forget(token);
            return Err(err);
        }
        session.is_at(row.epoch);
        if row.high > row.low {
            let lease = LeaseRow {
                token,
                low: row.low,
                high: row.high,
                only_version: None,
                reclaims: 0,
                done: Vec::new(),
                replay_until: row.replay_until,
            };
            let bindings = bindings(&session, &lease).await?;
            self.reading.start(session, lease, bindings);
        } else {
            session.forget(token);
        }
        Ok(self.after(&row, width).await)
    }

    /// The group was moved: what this process has lost with that must not run beside what it takes now.
    async fn let_go(&mut self) -> Result<(), Error> {
        let session = &self.session;
        // Lost ranges among those that are being read are found when they are there.
        while self.reading.oldest().await? {}
        if session.keys().is_some() {
            // Lost lanes and messages in trouble are only found by their next move.
            session.drop_exceptions();
        }
        while let Err(err) = presence::report(session).await {
            if session.closing.is_raised() {
                return Err(err);
            }
            tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                "looking what was lost when the group was moved; trying again");
            tokio::time::sleep(AFTER_ERROR).await;
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        let session = &self.session;
        if !session.is_present() {
            return false;
        }
        let width = usize::try_from(lock(&session.pace).width()).unwrap_or(usize::MAX);
        session.has_room(self.reading.ranges.len(), width)
    }

    async fn after(&mut self, row: &ClaimRow, width: i64) -> Next {
        if width == 0 {
            return Next::Wait(LONGEST_IDLE);
        }
        if row.contended {
            return Next::Again;
        }
        let moved = row.high > row.low;
        if !row.pending || row.head <= row.high {
            self.waits.clear();
            self.session.observing.leave(self.session.group);
            self.unstalled();
            self.pending = FIRST_PENDING;
            if moved {
                self.idle = FIRST_IDLE;
                return Next::Again;
            }
            let wait = self.idle;
            self.idle = (self.idle * 2).min(LONGEST_IDLE);
            return Next::Wait(wait);
        }
        let now = Instant::now();
        let first = self.waits.lasts(now).is_none();
        self.waits.waiting(now, moved);
        if moved || first {
            self.pending = FIRST_PENDING;
            return Next::Again;
        }
        self.pend(now).await
    }

    /// Waits for open transactions: briefly at first, then with the exact proof, then by name.
    async fn pend(&mut self, now: Instant) -> Next {
        let session = &self.session;
        let observed_for = if self.waits.wants_exact(now) { session.observing.wants(session.group, now) } else { None };
        if let Some(groups) = observed_for {
            match session.store.cursor_observe(session.stream, &groups).await {
                Ok(()) => return Next::Again,
                Err(err) => tracing::warn!(stream = %session.stream_name, error = %err, "observing open producers"),
            }
        }
        if self.waits.wants_causes(now) {
            self.name_stall(now).await;
        }
        let wait = self.pending;
        self.pending = (self.pending * 2).min(LONGEST_PENDING);
        Next::Wait(wait)
    }

    async fn name_stall(&self, now: Instant) {
        let session = &self.session;
        let causes = session.store.cursor_stall(session.stream, session.group).await.unwrap_or_default();
        let lasts = self.waits.lasts(now).unwrap_or(STALL_AFTER);
        session.counts.stalled.set(lasts.as_secs_f64());
        let stall =
            Stall { stream: session.stream_name.to_string(), group: session.group_name.to_string(), lasts, causes };
        let mut current = lock(&session.stall);
        if current.as_ref().is_none_or(|known| known.causes != stall.causes) {
            tracing::warn!(stream = %stall.stream, group = %stall.group, seconds = lasts.as_secs(), causes = ?stall.causes,
                "the group waits for a transaction that produced to its stream and is still open");
        }
        *current = Some(stall);
    }

    fn unstalled(&self) {
        if lock(&self.session.stall).take().is_some() {
            self.session.counts.stalled.set(0.0);
        }
    }
}

/// Ends the leases that wait for a claim to carry them, when no claim will come.
pub(crate) async fn flush(session: &Arc<Session>) {
    let settled = session.take_settled();
    if settled.is_empty() {
        return;
    }
    let params = ClaimParams {
        stream: session.stream,
        group: session.group,
        presence: session.presence,
        token: LeaseToken::mint(),
        width: 0,
        settled,
        durable: false,
    };
    if let Err(err) = session.store.claim_take(&params).await {
        tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
            "handled ranges could not be settled; others handle them again");
    }
}

fn missing(session: &Session) -> Error {
    Error::new(
        Kind::Declaration,
        "SQLS-0304",
        format!(
            "group \"{}\" of stream \"{}\" was removed while it was consuming",
            session.group_name, session.stream_name
        ),
    )
}

/// After a claim whose answer was lost: the lease may exist, and only its token tells.
async fn recover(session: &Arc<Session>, token: LeaseToken, err: Error) -> Result<(), Error> {
    if err.outcome_known() {
        session.forget(token);
        return Err(err);
    }
    match find(session, token).await {
        Ok(Some(lease)) => admit(session, lease).await,
        Ok(None) => {
            session.forget(token);
            Err(err)
        }
        Err(again) => {
            session.forget(token);
            Err(again)
        }
    }
}

/// The lease of a statement whose answer was lost; asks until the database tells. A lease that nobody looks for
/// would be this process's for ten seconds and more.
pub(crate) async fn find(session: &Session, token: LeaseToken) -> Result<Option<LeaseRow>, Error> {
    loop {
        match session.store.lease_find(session.stream, token).await {
            Err(err) if err.recovery() == Recovery::Transient && !session.closing.is_raised() => {
                tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                    "looking for a lease whose answer was lost");
                tokio::time::sleep(AFTER_ERROR).await;
            }
            found => return found,
        }
    }
}

/// Claimed ranges whose messages are being read, while the next claim is made. They reach the runners in the
/// order of their claims.
#[derive(Default)]
struct Reading {
    ranges: VecDeque<JoinHandle<Result<(), Error>>>,
    /// Closes when the newest range is with the runners, or never will be.
    newest: Option<oneshot::Receiver<()>>,
}

impl Reading {
    fn start(&mut self, session: Arc<Session>, lease: LeaseRow, bindings: Arc<Vec<String>>) {
        let (there, newest) = oneshot::channel::<()>();
        let before = self.newest.replace(newest);
        self.ranges.push_back(tokio::spawn(async move {
            let messages = read(&session, &lease, &bindings).await;
            if let Some(before) = before {
                let _ = before.await;
            }
            let admitted = gate::admit(&session, range(&session, lease, messages?)).await;
            drop(there);
            admitted
        }));
    }

    /// Waits for the oldest read; false when there is none.
    async fn oldest(&mut self) -> Result<bool, Error> {
        let Some(reading) = self.ranges.front_mut() else { return Ok(false) };
        let read = reading.await;
        self.ranges.pop_front();
        match read {
            Ok(read) => read.map(|()| true),
            Err(err) => Err(Error::new(Kind::Database, "SQLS-0998", "a task that read a range ended").with_source(err)),
        }
    }

    /// Takes note of the reads that are over.
    async fn finished(&mut self) -> Result<(), Error> {
        while self.ranges.front().is_some_and(JoinHandle::is_finished) {
            self.oldest().await?;
        }
        Ok(())
    }
}

/// The bindings to read a lease with. A lease that can't be read, since the presence expired, goes back: as long as
/// this process lives, nobody else would take it for ten seconds.
pub(crate) async fn bindings(session: &Session, lease: &LeaseRow) -> Result<Arc<Vec<String>>, Error> {
    let bindings = session.bindings_of_claim().await;
    if bindings.is_err() {
        let back = ReturnParams { token: lease.token, done: lease.done.clone(), exceptions: Vec::new() };
        if let Err(err) = session.store.lease_return(session.stream, &[back]).await {
            tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                "a range could not be given back; others take it in some seconds");
        }
        session.forget(lease.token);
    }
    bindings
}

/// Reads a lease's messages and hands them to the runners.
pub(crate) async fn admit(session: &Arc<Session>, lease: LeaseRow) -> Result<(), Error> {
    let bindings = bindings(session, &lease).await?;
    let messages = read(session, &lease, &bindings).await?;
    gate::admit(session, range(session, lease, messages)).await
}

pub(crate) async fn read(
    session: &Arc<Session>,
    lease: &LeaseRow,
    bindings: &[String],
) -> Result<Vec<StoredMessage>, Error> {
    let params = ReadParams {
        stream: session.stream,
        low: lease.low,
        high: lease.high,
        versions: session.versions.clone(),
        only_version: lease.only_version,
        bindings: bindings.to_vec(),
    };
    loop {
        match session.store.message_read(&params).await {
            Ok(messages) => return Ok(messages),
            Err(err) if err.recovery() == Recovery::Permanent || session.closing.is_raised() => {
                // Unlisted from now on, so others get it.
                session.forget(lease.token);
                return Err(err);
            }
            Err(err) => {
                tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                    "reading a claimed range; trying again");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

pub(crate) fn range(session: &Session, lease: LeaseRow, messages: Vec<StoredMessage>) -> Range {
    let bytes = messages.iter().filter_map(|message| message.payload.as_ref()).map(bytes::Bytes::len).sum();
    lock(&session.pace).read(messages.len(), bytes);
    let mut parked = Vec::new();
    let mut readable = Vec::with_capacity(messages.len());
    for message in messages {
        let version = message.schema_version.cast_signed();
        // In an ordered group a key waits with the message that can't be read.
        if session.reads(message.schema_version) || (session.is_ordered() && message.message_key.is_some()) {
            if !contains(&lease.done, message.id.0) {
                readable.push(message);
            }
        } else if !parked.contains(&(version, lease.low, lease.high)) {
            parked.push((version, lease.low, lease.high));
        }
    }
    Range::new(lease, readable, parked)
}
