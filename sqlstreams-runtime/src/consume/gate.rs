//! Gates of keyed groups: what other processes do with a key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::keys::{Entry, Gate};
use super::range::Range;
use super::session::{Session, Slot};
use super::signal::Signal;
use crate::backend::{ExceptionRow, KeyAsk, KeyGateParams, KeyGateRow};
use crate::error::{Error, Kind, Recovery};
use crate::identity::{LeaseToken, MessageId};
use crate::outcome::Verdict;

const AFTER_ERROR: Duration = Duration::from_millis(250);
/// How long a busy key is left alone before it is asked about again. Nobody tells this process when another one is
/// done with a key.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Lines up a range's messages. Ranges must come in the order of their claims.
pub(crate) async fn admit(session: &Arc<Session>, range: Range) -> Result<(), Error> {
    let Some(keys) = session.keys() else {
        session.admit(range);
        return Ok(());
    };
    let low = range.lease.low;
    let mut asked: Vec<Bytes> = range.messages.iter().filter_map(|message| message.message_key.clone()).collect();
    asked.sort_unstable();
    asked.dedup();
    let number = keys.lock().ask();
    let answer = ask(session, asked.into_iter().map(|key| (key, low)).collect()).await;
    let gates: HashMap<Bytes, Gate> = match answer {
        Ok(answer) => answer.into_iter().map(|(key, _, gate)| (key, gate)).collect(),
        Err(err) => {
            keys.lock().asked(number);
            // Unlisted from now on, so others get it.
            session.forget(range.lease.token);
            return Err(err);
        }
    };
    let Some(range) = session.open(range) else {
        keys.lock().asked(number);
        return Ok(());
    };
    let entries: Vec<_> = (0..range.messages.len()).map(|index| entry(session, &range, index, &gates)).collect();
    let held = {
        let mut keys = keys.lock();
        let held = keys.admit(number, entries);
        keys.asked(number);
        held
    };
    hold(session, held);
    session.queued.notify_waiters();
    Ok(())
}

fn entry(session: &Session, range: &Arc<Range>, index: usize, gates: &HashMap<Bytes, Gate>) -> Entry<Slot> {
    let message = &range.messages[index];
    let key = message.message_key.clone();
    let mut gate = key.as_ref().and_then(|key| gates.get(key)).copied().unwrap_or_default();
    // What this build can't read waits, with its key, for one that can.
    gate.laned |= range.hold || !session.reads(message.schema_version);
    Entry { key, id: message.id.0, low: range.lease.low, gate, slot: (Arc::clone(range), index) }
}

/// Records that messages wait for an earlier one of their key.
pub(crate) fn hold(session: &Arc<Session>, held: Vec<Slot>) {
    for (range, index) in held {
        if range.finish(index, Verdict::Held) {
            session.finished(&range);
        }
    }
}

/// Asks the database until it answers.
async fn ask(session: &Session, keys: Vec<(Bytes, i64)>) -> Result<Vec<(Bytes, i64, Gate)>, Error> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let text = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
    let params = KeyGateParams {
        stream: session.stream,
        group: session.group,
        own: session.open_ranges().iter().map(|range| range.lease.token).collect(),
        keys: keys.iter().map(|(key, low)| KeyAsk { key: text(key), low: *low, message: None }).collect(),
    };
    loop {
        match session.store.key_gate(&params).await {
            Ok(rows) => {
                let gate = |row: &KeyGateRow| Gate { laned: row.laned, busy: row.busy };
                return Ok(keys.into_iter().zip(&rows).map(|((key, low), row)| (key, low, gate(row))).collect());
            }
            Err(err) if err.recovery() == Recovery::Permanent || session.closing.is_raised() => return Err(err),
            Err(err) => {
                tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                    "looking for busy keys; trying again");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

/// Asks again about keys that others are busy with, until the session closes.
pub(crate) async fn run(session: Arc<Session>) -> Result<(), Error> {
    let Some(keys) = session.keys() else { return Ok(()) };
    let mut pause = FIRST_PAUSE;
    while !session.closing.is_raised() {
        let busy = keys.lock().busy();
        if busy.is_empty() {
            pause = FIRST_PAUSE;
        } else {
            let number = keys.lock().ask();
            let answer = ask(&session, busy).await;
            let held = {
                let mut keys = keys.lock();
                let held = answer.map(|gates| keys.answered(number, gates));
                keys.asked(number);
                held
            };
            match held {
                Ok(held) => hold(&session, held),
                Err(_) if session.closing.is_raised() => return Ok(()),
                Err(err) => return Err(err),
            }
            session.queued.notify_waiters();
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // Jitter: processes that wait for each other should not ask in step.
        let wait = pause.mul_f64(rand::random_range(0.7..1.3));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = session.closing.raised() => {}
        }
    }
    Ok(())
}

/// Lines a message in trouble up, outside any lane, with the ranges of a keyed group, and waits for its turn. False when
/// the session closes, the message is lost, or the database does not answer: then it goes back.
pub(crate) async fn turn(session: &Session, token: LeaseToken, row: &ExceptionRow, dropped: &Signal) -> bool {
    let (Some(_), Some(key)) = (session.keys(), row.message_key.as_ref()) else { return true };
    let waiting = async {
        let low = ticket(session, token, row.id).await?;
        wait(session, KeyAsk { key: key.clone(), low, message: Some(row.id) }).await
    };
    tokio::select! {
        biased;
        () = session.closing.raised() => false,
        () = dropped.raised() => false,
        turn = waiting => match turn {
            Ok(turn) => turn,
            Err(err) => {
                tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                    "lining a message in trouble up; trying again later");
                false
            }
        },
    }
}

/// A claim that is in the way is over soon; a message that is lost never gets a ticket.
const TICKET_TRIES: u32 = 20;

async fn ticket(session: &Session, token: LeaseToken, message: MessageId) -> Result<i64, Error> {
    for _ in 0..TICKET_TRIES {
        if let Some(ticket) = session.store.key_ticket(session.stream, session.group, token, message).await? {
            return Ok(ticket);
        }
        tokio::time::sleep(Duration::from_millis(rand::random_range(1..=5))).await;
    }
    Err(Error::new(Kind::Busy, "SQLS-0324", "claims kept a message in trouble from being lined up"))
}

/// Asks until nothing of the key is before the message. This process's own ranges count like those of others: what they
/// handled is known when they are settled.
async fn wait(session: &Session, ask: KeyAsk) -> Result<bool, Error> {
    let params = KeyGateParams { stream: session.stream, group: session.group, own: Vec::new(), keys: vec![ask] };
    let mut pause = FIRST_PAUSE;
    loop {
        let rows = session.store.key_gate(&params).await?;
        if rows.iter().all(|row| !row.busy && !row.lane_runs) {
            return Ok(true);
        }
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.7..1.3))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether another message of the lane's key, outside the lane, was lined up and may be running.
pub(crate) async fn is_ticketed(session: &Session, key: &str, at: MessageId) -> Result<bool, Error> {
    let ask = KeyAsk { key: key.to_owned(), low: 0, message: Some(at) };
    let params = KeyGateParams { stream: session.stream, group: session.group, own: Vec::new(), keys: vec![ask] };
    Ok(session.store.key_gate(&params).await?.iter().any(|row| row.ticketed))
}
