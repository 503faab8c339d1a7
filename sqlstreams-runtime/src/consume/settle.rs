//! Ends ranges that need more than their lease deleted.

use std::sync::Arc;
use std::time::Duration;

use super::range::Range;
use super::session::Session;
use crate::backend::{ExceptionNext, ExceptionParams, ReturnParams, SettleParams};
use crate::error::Recovery;
use crate::message::StoredMessage;
use crate::outcome::Verdict;

/// Records the range's messages in trouble and parked versions, and ends its lease; tries until it is
/// recorded or the lease is lost.
pub(crate) async fn settle(session: &Arc<Session>, range: &Arc<Range>) {
    let troubled = range.take_troubled();
    let done = range.messages.len() - troubled.len();
    let exceptions = exceptions(session, range, troubled);
    let params = SettleParams {
        stream: session.stream,
        token: range.lease.token,
        exceptions,
        parked: range.parked.clone(),
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
    if settled {
        session.counts.count_done(done as u64);
        for exception in &params.exceptions {
            session.counts.count(&exception.next);
        }
        session.trouble.notify_one();
    }
    session.news.notify_one();
}

fn exceptions(session: &Session, range: &Range, troubled: Vec<(usize, Verdict)>) -> Vec<ExceptionParams> {
    let exception = |(index, verdict)| exception(&range.messages[index], session.next_after(verdict, 0));
    troubled.into_iter().map(exception).collect()
}

pub(crate) fn exception(message: &StoredMessage, next: ExceptionNext) -> ExceptionParams {
    let key = message.message_key.as_deref().map(|key| String::from_utf8_lossy(key).into_owned());
    ExceptionParams { message: message.id, schema_version: message.schema_version, message_key: key, next }
}

/// Gives back what is open, with what is handled inside it, so that others take the rest at once.
pub(crate) async fn give_back(session: &Arc<Session>) {
    let ranges: Vec<_> = session.open_ranges().into_iter().filter(|range| range.give_back()).collect();
    for range in &ranges {
        range.dropped.raise();
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
