//! Ends ranges that need more than their lease deleted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use sqlstreams_schema::DeliveryLog;

use super::range::Range;
use super::session::Session;
use crate::backend::{ExceptionNext, ExceptionParams, ProgressParams, ReturnParams, SettleParams};
use crate::error::Recovery;
use crate::identity::MessageId;
use crate::message::StoredMessage;
use crate::outcome::Verdict;

/// Records the range's messages in trouble and parked versions, and ends its lease; tries until it is
/// recorded or the lease is lost.
pub(crate) async fn settle(session: &Arc<Session>, range: &Arc<Range>) {
    let troubled = range.take_troubled();
    let done = range.messages.len() - troubled.len();
    let indices: Vec<_> = troubled.iter().map(|(index, _)| *index).collect();
    let exceptions = exceptions(session, range, troubled);
    let params = SettleParams {
        stream: session.stream,
        token: range.lease.token,
        exceptions,
        parked: range.parked.clone(),
        log: session.delivery_log,
        handled: handled(session, range),
        now: None,
    };
    let settled = loop {
        match session.store.lease_settle(&params).await {
            Ok(settled) => break settled,
            Err(err) if range.dropped.is_raised() || err.recovery() == Recovery::Permanent => {
                tracing::error!(stream = %session.stream_name, group = %session.group_name, error = %err,
                    "a range could not be settled; its messages will be handled again");
                break false;
            }
            Err(err) => {
                tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                    "settling a range; trying again");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    };
    session.close_range(range.lease.token);
    if let Some(keyed) = session.keys() {
        keyed.forget(range, &indices);
        if !settled && !range.dropped.is_raised() {
            session.lose(range);
        }
    }
    if settled {
        session.counts.count_done(done as u64);
        for exception in &params.exceptions {
            session.counts.count(&exception.next);
        }
        if !params.exceptions.is_empty() {
            session.trouble.notify_one();
        }
    }
    session.news.notify_one();
}

/// Settles finished ranges of a keyed group, the lowest first. What is handled in lower ones is recorded before: their
/// messages ran before those of the same keys here, and after a crash must not run again after them.
pub(crate) async fn settle_in_order(session: &Arc<Session>) {
    let Some(keyed) = session.keys() else { return };
    let _settling = keyed.settling.lock().await;
    while let Some((range, below)) = keyed.next_to_settle() {
        if keyed.ordered && !record(session, &below).await {
            return;
        }
        settle(session, &range).await;
    }
}

/// Records what is handled inside open ranges; false when the session closes first.
async fn record(session: &Session, ranges: &[Arc<Range>]) -> bool {
    // The highest first: of one key, a message that is seen as handled has none below it that is not.
    let progress: Vec<_> = ranges
        .iter()
        .rev()
        .filter(|range| range.done_count() > 0)
        .map(|range| ProgressParams { token: range.lease.token, done: range.done_intervals() })
        .collect();
    if progress.is_empty() {
        return true;
    }
    loop {
        let tokens = session.tokens();
        let report =
            session.store.lease_report(session.stream, session.group, session.presence, &tokens, &progress).await;
        match report {
            Ok(_) => return true,
            Err(err) if session.closing.is_raised() => {
                tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                    "recording what is handled; finished messages will be handled again");
                return false;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

fn exceptions(session: &Session, range: &Range, mut troubled: Vec<(usize, Verdict)>) -> Vec<ExceptionParams> {
    if !session.is_ordered() {
        let exception = |(index, verdict)| exception(&range.messages[index], session.next_after(verdict, 0));
        return troubled.into_iter().map(exception).collect();
    }
    troubled.sort_unstable_by_key(|(index, _)| *index);
    let mut exceptions: Vec<ExceptionParams> = Vec::new();
    // The place of each key's lane in `exceptions`.
    let mut lanes = HashMap::new();
    for (index, verdict) in troubled {
        let message = &range.messages[index];
        let mut exception = exception(message, session.next_after(verdict, 0));
        if let Some(key) = message.message_key.clone()
            && !matches!(exception.next, ExceptionNext::Dead { .. })
        {
            exception.held_to = Some(message.id.0);
            match lanes.entry(key) {
                Entry::Occupied(lane) => {
                    let lane: &mut ExceptionParams = &mut exceptions[*lane.get()];
                    lane.held_to = exception.held_to;
                    continue;
                }
                Entry::Vacant(lane) => {
                    lane.insert(exceptions.len());
                }
            }
        }
        exceptions.push(exception);
    }
    exceptions
}

/// The range's handled messages, where the group's delivery log keeps those, or where dead letters of theirs go.
fn handled(session: &Session, range: &Range) -> Vec<MessageId> {
    if session.delivery_log == DeliveryLog::All || range.is_replay() { range.handled() } else { Vec::new() }
}

pub(crate) fn exception(message: &StoredMessage, next: ExceptionNext) -> ExceptionParams {
    let key = message.message_key.as_deref().map(|key| String::from_utf8_lossy(key).into_owned());
    ExceptionParams {
        message: message.id,
        schema_version: message.schema_version,
        message_key: key,
        held_to: None,
        next,
    }
}

/// Gives back what is open, with what is handled inside it, so that others take the rest at once.
pub(crate) async fn give_back(session: &Arc<Session>) {
    let mut ranges: Vec<_> = session.open_ranges().into_iter().filter(|range| range.give_back()).collect();
    highest_first(&mut ranges);
    for range in &ranges {
        range.dropped.raise();
    }
    for range in &ranges {
        log_handled(session, range).await;
    }
    if ranges.is_empty() {
        return;
    }
    let handled: usize = ranges.iter().map(|range| range.done_count()).sum();
    let leases: Vec<_> = ranges.iter().map(|range| returned(session, range)).collect();
    match session.store.lease_return(session.stream, &leases).await {
        Ok(()) => {
            ranges.iter().for_each(|range| session.close_range(range.lease.token));
            session.counts.count_done(handled as u64);
            for exception in leases.iter().flat_map(|lease| &lease.exceptions) {
                session.counts.count(&exception.next);
            }
        }
        Err(err) => tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
            "ranges could not be given back; others take them when this process's presence has expired"),
    }
}

/// The order in which ranges are looked at: of one key, a message that is seen as handled has none below it that is not.
pub(crate) fn highest_first(ranges: &mut [Arc<Range>]) {
    ranges.sort_unstable_by_key(|range| std::cmp::Reverse(range.lease.low));
}

/// What became of a range that goes back before its end. Messages in trouble get their rows now: nobody runs them
/// again as if they were fresh.
pub(crate) fn returned(session: &Session, range: &Range) -> ReturnParams {
    let troubled = range.take_troubled();
    for (index, _) in &troubled {
        range.set_done(*index);
    }
    ReturnParams {
        token: range.lease.token,
        done: range.done_intervals(),
        exceptions: exceptions(session, range, troubled),
    }
}

/// Others get only the rest of the range, so that nobody else logs what is handled.
async fn log_handled(session: &Arc<Session>, range: &Range) {
    let handled = handled(session, range);
    if handled.is_empty() || session.delivery_log != DeliveryLog::All {
        return;
    }
    if let Err(err) = session.store.delivery_append(session.stream, range.lease.token, &handled).await {
        tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
            "handled messages are missing in the delivery log");
    }
}
