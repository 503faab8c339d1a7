//! The exception loop of one group: runs messages in trouble again when they are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::dispatch::{Deadline, dispatch, rest};
use super::gate;
use super::lane;
use super::session::Session;
use super::settle::exception;
use super::signal::Signal;
use crate::backend::{ExceptionNext, ExceptionParams, ExceptionRow, ExceptionSettleParams, ExceptionTakeParams};
use crate::delivery::Delivery;
use crate::error::{Error, Recovery};
use crate::identity::{LeaseToken, MessageId};
use crate::time::Timestamp;

const LONGEST_WAIT: Duration = Duration::from_secs(1);
const AFTER_ERROR: Duration = Duration::from_millis(250);
const MOST_TAKEN: usize = 100;
/// So often due messages are looked for from the beginning.
const WHOLE_LOOK: Duration = Duration::from_secs(10);
/// Lost owners until a message is dead.
pub(crate) const MAX_KILLS: i32 = 3;

/// One message that lost an owner runs at a time: if it kills this process too, it is known to be the one.
struct Alone(Arc<AtomicBool>);

impl Alone {
    fn new(running: &Arc<AtomicBool>) -> Self {
        running.store(true, Ordering::Release);
        Self(Arc::clone(running))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Where the next look for due messages begins: where the last one ended. A snapshot that somebody holds keeps the
/// index entries of everything that was due before, and a look from the beginning walks them all.
///
/// What becomes due below it, as a row that another process let go, is found by a look from the beginning: after a
/// look that found less than it asked for, and at the latest every ten seconds.
struct Bound {
    from: Option<Timestamp>,
    whole_look: Instant,
}

impl Bound {
    fn new(now: Instant) -> Self {
        Self { from: None, whole_look: now }
    }

    /// Where a look that is made now begins.
    fn next(&mut self, now: Instant) -> Option<Timestamp> {
        if now.saturating_duration_since(self.whole_look) >= WHOLE_LOOK {
            self.from = None;
        }
        if self.from.is_none() {
            self.whole_look = now;
        }
        self.from
    }

    /// Takes note of what a look for `limit` due messages found.
    fn found(&mut self, rows: &[ExceptionRow], limit: i64) {
        let due = rows.iter().filter(|row| row.kills == 0).map(|row| row.due);
        let full = i64::try_from(due.clone().count()).unwrap_or(i64::MAX) >= limit;
        self.from = if full { due.max() } else { None };
    }
}

/// Runs due messages until the session closes.
pub(crate) async fn run(session: Arc<Session>) -> Result<(), Error> {
    // Messages in trouble have at most as many places as fresh ones; the session's permits bound both together.
    // One more is for suspects.
    let places = Arc::new(Semaphore::new(session.concurrency.min(MOST_TAKEN) + 1));
    let suspect = Arc::new(AtomicBool::new(false));
    let mut bound = Bound::new(Instant::now());
    let mut told = true;
    while !session.closing.is_raised() {
        let wait = match step(&session, &places, &suspect, &mut bound, told).await {
            Ok(wait) => wait,
            Err(err) if err.recovery() == Recovery::Permanent => return Err(err),
            Err(err) => {
                tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                    "taking messages in trouble; trying again");
                AFTER_ERROR
            }
        };
        told = tokio::select! {
            () = session.trouble.notified() => true,
            () = tokio::time::sleep(wait) => wait < LONGEST_WAIT,
            () = session.closing.raised() => false,
        };
    }
    Ok(())
}

/// Takes what is due and starts it; the time until it is worth looking again. `told`: there is trouble, so
/// the next due time is worth a question; an idle group just looks now and then.
async fn step(
    session: &Arc<Session>,
    places: &Arc<Semaphore>,
    suspect: &Arc<AtomicBool>,
    bound: &mut Bound,
    told: bool,
) -> Result<Duration, Error> {
    let free = places.available_permits();
    if free <= 1 || !session.is_present() {
        return Ok(LONGEST_WAIT);
    }
    let token = LeaseToken::mint();
    let params = ExceptionTakeParams {
        stream: session.stream,
        group: session.group,
        presence: session.presence,
        token,
        limit: i64::try_from(free).unwrap_or(i64::MAX) - 1,
        suspects: i64::from(!suspect.load(Ordering::Acquire)),
        versions: session.versions.clone(),
        max_kills: MAX_KILLS,
        due_from: bound.next(Instant::now()),
        now: None,
    };
    let rows = match session.store.exception_take(&params).await {
        Ok(rows) => rows,
        Err(err) if err.outcome_known() => return Err(err),
        Err(err) => {
            // Rows may be ours that nobody runs; they would stay so as long as this process lives.
            let session = Arc::clone(session);
            tokio::spawn(async move { give_back_later(&session, token).await });
            return Err(err);
        }
    };
    bound.found(&rows, params.limit);
    let (full, none) = (rows.len() + 1 >= free, rows.is_empty());
    for row in rows {
        let Ok(place) = Arc::clone(places).try_acquire_owned() else { break };
        let suspect = (row.kills > 0).then(|| Alone::new(suspect));
        let session = Arc::clone(session);
        session.settlements.clone().spawn(async move {
            run_one(&session, token, row).await;
            drop((place, suspect));
            session.trouble.notify_one();
        });
    }
    if full || (none && !told) {
        return Ok(LONGEST_WAIT);
    }
    let due = session.store.exception_due(session.stream, session.group).await?;
    match due {
        // Due, and yet not to be had: another version, or a suspect beside one that runs.
        Some(Duration::ZERO) if none => Ok(LONGEST_WAIT),
        due => Ok(due.map_or(LONGEST_WAIT, |due| due.min(LONGEST_WAIT))),
    }
}

async fn run_one(session: &Arc<Session>, token: LeaseToken, row: ExceptionRow) {
    // Taken before the wait for a permit: what is lost meanwhile is not started.
    let dropped = session.exceptions_dropped();
    if row.held_to.is_none() && !gate::turn(session, token, &row, &dropped).await {
        return record(session, token, returned(row.id)).await;
    }
    let place = async {
        // Fresh messages keep the other half; alone, those in trouble may have all.
        let half = if session.has_fresh() { session.half.acquire().await.ok() } else { None };
        session.permits.acquire().await.ok().map(|permit| (half, permit))
    };
    let permit = tokio::select! {
        biased;
        () = session.closing.raised() => None,
        () = dropped.raised() => None,
        place = place => place,
    };
    if row.held_to.is_some() {
        return lane::run(session, token, row, &dropped).await;
    }
    let exception = match &permit {
        None => returned(row.id),
        Some(_) => handle(session, row, &dropped).await,
    };
    record(session, token, exception).await;
}

async fn record(session: &Arc<Session>, token: LeaseToken, exception: ExceptionParams) {
    let (id, next) = (exception.message, exception.next.clone());
    let params = ExceptionSettleParams {
        stream: session.stream,
        group: session.group,
        token,
        exceptions: vec![exception],
        log: session.delivery_log,
        now: None,
    };
    match session.store.exception_settle(&params).await {
        Ok(recorded) if recorded.contains(&id) => session.counts.count(&next),
        Ok(_) => tracing::debug!(stream = %session.stream_name, group = %session.group_name, %id,
            "an outcome was not recorded; another process has the message"),
        Err(err) => {
            tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                "an outcome could not be recorded; the message will be handled again");
            // Its row is ours as long as this process lives, so it must be given back as soon as that works. Others
            // that were taken with it may be running.
            let params = ExceptionSettleParams { exceptions: vec![returned(id)], ..params };
            while !session.closing.is_raised() && session.store.exception_settle(&params).await.is_err() {
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

async fn give_back_later(session: &Arc<Session>, token: LeaseToken) {
    while !session.closing.is_raised() {
        if session.store.exception_return(session.stream, session.group, token).await.is_ok() {
            return;
        }
        tokio::time::sleep(AFTER_ERROR).await;
    }
}

async fn handle(session: &Arc<Session>, row: ExceptionRow, dropped: &Signal) -> ExceptionParams {
    let Some(message) = row.message else {
        let error = "the stream does not hold the message any more".to_owned();
        return ExceptionParams { next: ExceptionNext::Dead { error }, ..returned(row.id) };
    };
    let failures = row.failures.max(0).cast_unsigned();
    let delivery = Delivery {
        message: message.clone(),
        stream: Arc::clone(&session.stream_name),
        group: Arc::clone(&session.group_name),
        attempts: row.attempts.max(0).cast_unsigned(),
        failures,
        delays: row.delays.max(0).cast_unsigned(),
        progress: Arc::default(),
        replay: row.replay_until >= Some(row.id.0),
    };
    let deadline = Deadline::new(session.timeout, message.id, Arc::clone(&delivery.progress));
    let verdict = match dispatch(session, delivery) {
        Ok(handling) => rest(handling, deadline, dropped).await,
        Err(verdict) => Some(verdict),
    };
    match verdict {
        Some(verdict) => exception(&message, session.next_after(verdict, failures)),
        None => returned(row.id),
    }
}

/// A message that goes back unhandled.
fn returned(id: MessageId) -> ExceptionParams {
    ExceptionParams { message: id, schema_version: 0, message_key: None, held_to: None, next: ExceptionNext::Return }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(dues: &[(i64, i32)]) -> Vec<ExceptionRow> {
        let row = |&(due, kills): &(i64, i32)| ExceptionRow {
            message: None,
            id: MessageId(due),
            due: Timestamp(due),
            attempts: 1,
            failures: 1,
            delays: 0,
            kills,
            held_to: None,
            message_key: None,
            replay_until: None,
        };
        dues.iter().map(row).collect()
    }

    #[test]
    fn a_full_look_moves_the_bound_and_a_short_one_drops_it() {
        let now = Instant::now();
        let mut bound = Bound::new(now);
        assert_eq!(bound.next(now), None);
        bound.found(&rows(&[(30, 0), (10, 0), (20, 0), (90, 1)]), 3);
        assert_eq!(bound.next(now), Some(Timestamp(30)), "a suspect's time does not count");
        bound.found(&rows(&[(40, 0), (50, 0), (90, 1)]), 3);
        assert_eq!(bound.next(now), None, "a suspect does not make a look full");
        bound.found(&[], 3);
        assert_eq!(bound.next(now), None);
    }

    #[test]
    fn every_ten_seconds_a_look_begins_at_the_beginning() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut bound = Bound::new(start);
        let look = |bound: &mut Bound, millis| {
            let from = bound.next(at(millis));
            bound.found(&rows(&[(7, 0)]), 1);
            from
        };
        assert_eq!(look(&mut bound, 0), None);
        assert_eq!(look(&mut bound, 1), Some(Timestamp(7)));
        assert_eq!(look(&mut bound, 9_999), Some(Timestamp(7)));
        assert_eq!(look(&mut bound, 10_000), None);
        assert_eq!(look(&mut bound, 19_999), Some(Timestamp(7)), "the ten seconds begin anew");
        assert_eq!(look(&mut bound, 20_000), None);
    }
}
