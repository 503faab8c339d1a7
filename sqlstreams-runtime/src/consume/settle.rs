//! Ends ranges that need more than their lease deleted.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_schema::DeliveryLog;

use super::range::Range;
use super::session::Session;
use crate::backend::{ExceptionNext, ExceptionParams, ProgressParams, SettleParams};
use crate::error::Recovery;
use crate::identity::MessageId;
use crate::message::StoredMessage;

/// Records the range's messages in trouble and parked versions, and ends its lease; tries until it is
/// recorded or the lease is lost.
pub(crate) async fn settle(session: &Arc<Session>, range: &Arc<Range>) {
    let troubled = range.take_troubled();
    let done = range.messages.len() - troubled.len();
    let exceptions: Vec<_> = troubled
        .into_iter()
        .map(|(index, verdict)| exception(&range.messages[index], session.next_after(verdict, 0)))
        .collect();
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

/// The range's handled messages, where the group's delivery log keeps those.
fn handled(session: &Session, range: &Range) -> Vec<MessageId> {
    if session.delivery_log == DeliveryLog::All { range.handled() } else { Vec::new() }
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
    for range in &ranges {
        log_handled(session, range).await;
    }
    let progress: Vec<_> =
        ranges.iter().map(|range| ProgressParams { token: range.lease.token, done: range.done_intervals() }).collect();
    if progress.is_empty() {
        return;
    }
    match session.store.lease_return(session.stream, &progress).await {
        Ok(()) => {
            for range in &ranges {
                session.close_range(range.lease.token);
                session.counts.count_done(range.done_count() as u64);
            }
        }
        Err(err) => tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
            "ranges could not be given back; others take them when this process's presence has expired"),
    }
}

/// Others get only the rest of the range, so that nobody else logs what is handled.
async fn log_handled(session: &Arc<Session>, range: &Range) {
    let handled = handled(session, range);
    if handled.is_empty() {
        return;
    }
    if let Err(err) = session.store.delivery_append(session.stream, range.lease.token, &handled).await {
        tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
            "handled messages are missing in the delivery log");
    }
}
