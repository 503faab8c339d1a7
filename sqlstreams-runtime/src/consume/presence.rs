//! The heartbeat of a consuming process: keeps it present, reports progress, and notices what was lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::binding::Change;
use super::session::Session;
use super::settle::{highest_first, returned};
use crate::backend::{BindingParams, PresenceParams, ProgressParams, ReturnParams};
use crate::error::Error;
use crate::store::Store;

const AFTER_ERROR: Duration = Duration::from_millis(250);

pub(crate) struct Heart {
    pub(crate) store: Store,
    pub(crate) params: PresenceParams,
    pub(crate) sessions: Vec<Arc<Session>>,
    /// When the presence expires, judged by this process: from before the last successful renewal was sent.
    pub(crate) expires: Instant,
    pub(crate) beats: u32,
    /// The presence may have expired, and nobody has looked yet what others changed meanwhile.
    pub(crate) unsure: bool,
    /// What was given up when the presence expired, to be given back when the database answers again: this
    /// presence lives on then, so nobody would take it over.
    pub(crate) given_up: Vec<(Arc<Session>, Vec<ReturnParams>)>,
}

impl Heart {
    /// Beats until `stop`, four times a ttl.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let every = self.params.ttl / 4;
        let mut wait = every;
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => return,
            }
            if Instant::now() >= self.expires {
                // Late, as after a freeze. The report tells which ranges are lost, and nothing tells it of messages
                // in trouble.
                self.sessions.iter().for_each(|session| session.drop_exceptions());
            }
            wait = match self.beat().await {
                Ok(()) => every,
                Err(err) => {
                    tracing::warn!(error = %err, "renewing this process's presence; trying again");
                    AFTER_ERROR
                }
            };
            if Instant::now() >= self.expires {
                self.lose_everything();
            }
        }
    }

    async fn beat(&mut self) -> Result<(), Error> {
        let sent = Instant::now();
        let left = self.expires.saturating_duration_since(sent).max(AFTER_ERROR);
        let renewal = async {
            if self.store.presence_renew(self.params.id, self.params.ttl).await? {
                return Ok(());
            }
            self.store.presence_enter(&self.params).await
        };
        // A connection that hangs must not hide that the time is over.
        match tokio::time::timeout(left, renewal).await {
            Ok(renewed) => renewed?,
            Err(_) => return Err(overdue()),
        }
        // Judged after the answer: the renewal may have come too late.
        self.unsure |= Instant::now() >= self.expires;
        self.expires = sent + self.params.ttl;
        if self.unsure {
            self.agree(|_| true).await?;
            self.unsure = false;
        }
        for session in &self.sessions {
            session.present_until(self.expires);
        }
        while let Some((session, ranges)) = self.given_up.last() {
            let returning = session.store.lease_return(session.stream, ranges);
            match tokio::time::timeout(self.params.ttl / 4, returning).await {
                Ok(returned) => returned?,
                Err(_) => return Err(overdue()),
            }
            self.given_up.pop();
        }
        self.beats = self.beats.wrapping_add(1);
        let all = self.beats.is_multiple_of(16);
        self.agree(|session| all || !session.bindings.are_held()).await?;
        for session in &self.sessions {
            // An idle group has nothing to report; now and then it still asks, so that a lease that nobody
            // in this process knows of is freed.
            if session.tokens().is_empty() && !self.beats.is_multiple_of(16) {
                continue;
            }
            match tokio::time::timeout(self.params.ttl / 4, report(session)).await {
                Ok(reported) => reported?,
                Err(_) => return Err(overdue()),
            }
        }
        Ok(())
    }

    /// Asks for the stored bindings of some groups. Those that are in force by this process's own declaration are
    /// nobody else's to change as long as it is present.
    async fn agree(&mut self, wanted: impl Fn(&Session) -> bool) -> Result<(), Error> {
        let mut withdrawn = false;
        for session in self.sessions.iter().filter(|session| wanted(session)) {
            match tokio::time::timeout(self.params.ttl / 4, agree(session)).await {
                Ok(change) => withdrawn |= change? == Change::Withdrawn,
                Err(_) => return Err(overdue()),
            }
        }
        if withdrawn {
            self.params.readable = self.readable();
            self.store.presence_enter(&self.params).await?;
        }
        Ok(())
    }

    fn readable(&self) -> String {
        let all: Vec<_> = self
            .sessions
            .iter()
            .map(|session| {
                let declared = session.bindings.declared();
                readable(&session.stream_name, &session.group_name, &session.versions, declared.as_deref())
            })
            .collect();
        serde_json::Value::from(all).to_string()
    }

    /// The presence expired: others may own everything by now. Handlers are dropped, nothing is recorded.
    fn lose_everything(&mut self) {
        for session in &self.sessions {
            session.present_until(Instant::now());
            session.drop_exceptions();
            let mut open = session.open_ranges();
            highest_first(&mut open);
            open.iter().for_each(|range| range.dropped.raise());
            let ranges: Vec<_> = open.iter().map(|range| returned(session, range)).collect();
            for range in open {
                tracing::warn!(stream = %session.stream_name, group = %session.group_name,
                    "this process's presence expired; a range is left to others");
                session.lose(&range);
            }
            if !ranges.is_empty() {
                self.given_up.push((Arc::clone(session), ranges));
            }
        }
    }
}

/// What a presence says of one group.
pub(crate) fn readable(stream: &str, group: &str, versions: &[i32], bindings: Option<&[String]>) -> serde_json::Value {
    let mut readable = serde_json::json!({"stream": stream, "group": group, "versions": versions});
    if let Some(bindings) = bindings {
        readable["bindings"] = bindings.into();
    }
    readable
}

/// Asks for one group's stored bindings, or to store the declared ones; ranges that are claimed from here on are read
/// with the answer.
async fn agree(session: &Session) -> Result<Change, Error> {
    let params = BindingParams {
        stream: session.stream,
        group: session.group,
        presence: Some(session.presence),
        declared: session.bindings.asks_for(),
    };
    let _changing = match params.declared {
        Some(_) => Some(session.bindings.changing().await),
        None => None,
    };
    let change = session.bindings.take(session.store.binding_declare(&params).await?);
    let (stream, group) = (&session.stream_name, &session.group_name);
    match &change {
        Change::Nothing => {}
        Change::InForce => tracing::info!(%stream, %group, "the declared bindings are in force"),
        Change::Waits(hold) => {
            tracing::warn!(%stream, %group, %hold, "the declared bindings wait; the stored ones are in force")
        }
        Change::Withdrawn => tracing::warn!(%stream, %group,
            "other bindings were stored while this process was away; it follows the stored ones until it restarts"),
    }
    Ok(change)
}

fn overdue() -> Error {
    Error::new(crate::error::Kind::Unavailable, "SQLS-0120", "the database did not answer a renewal in time")
}

/// Reports progress of one group's ranges, and drops those that someone else owns.
pub(crate) async fn report(session: &Arc<Session>) -> Result<(), Error> {
    // Only ranges that were open before the question was sent can be judged by its answer.
    let mut open = session.open_ranges();
    highest_first(&mut open);
    let tokens = session.tokens();
    let progress: Vec<_> = open
        .iter()
        .filter_map(|range| Some(ProgressParams { token: range.lease.token, done: range.progress()? }))
        .collect();
    let owned = session.store.lease_report(session.stream, session.group, session.presence, &tokens, &progress).await?;
    let still_open = session.open_ranges();
    let mut any_lost = false;
    for range in open {
        let token = range.lease.token;
        let lost = !owned.contains(&token) && still_open.iter().any(|range| range.lease.token == token);
        if lost {
            tracing::warn!(stream = %session.stream_name, group = %session.group_name, low = range.lease.low,
                high = range.lease.high, "a range belongs to this process no more: another one took it over, or the group was rewound");
            session.lose(&range);
            any_lost = true;
        }
    }
    if any_lost && session.keys().is_some() {
        // As when the group was rewound, and its lanes with it: a lost one is only found by its next move.
        session.drop_exceptions();
    }
    Ok(())
}
