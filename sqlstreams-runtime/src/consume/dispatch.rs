//! Runners: take messages from the claimed ranges and run their handlers.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::handler::Handling;
use super::range::Range;
use super::session::Session;
use super::signal::Signal;
use crate::delivery::{Delivery, Progress};
use crate::identity::MessageId;
use crate::outcome::{BoxError, Outcome, Verdict};

/// One of a few runners of a session. Ends when the session closes.
pub(crate) async fn run(session: Arc<Session>) {
    // The message first: a runner that waits for one must not keep a permit from messages in trouble.
    while let Some((range, index)) = next(&session).await {
        let Some(permit) = permit(&session).await else { return };
        if range.dropped.is_raised() {
            // Lost while it waited for the permit.
            continue;
        }
        start(&session, range, index, permit).await;
        // Handlers that are always ready would keep this thread from every other task.
        tokio::task::coop::consume_budget().await;
    }
}

async fn permit(session: &Session) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = Arc::clone(&session.permits).try_acquire_owned() {
        return Some(permit);
    }
    tokio::select! {
        biased;
        () = session.closing.raised() => None,
        permit = Arc::clone(&session.permits).acquire_owned() => permit.ok(),
    }
}

async fn next(session: &Session) -> Option<(Arc<Range>, usize)> {
    loop {
        // Registered before the look, so that a range queued in between is not missed.
        let queued = session.queued.notified();
        if session.closing.is_raised() {
            return None;
        }
        if let Some(next) = session.next() {
            return Some(next);
        }
        tokio::select! {
            () = queued => {}
            () = session.closing.raised() => return None,
        }
    }
}

/// Runs a handler. One that is ready at its first poll costs no task and no timer; any other goes on in a
/// task of its own.
async fn start(session: &Arc<Session>, range: Arc<Range>, index: usize, permit: OwnedSemaphorePermit) {
    let delivery = Delivery {
        message: range.messages[index].clone(),
        stream: Arc::clone(&session.stream_name),
        group: Arc::clone(&session.group_name),
        attempts: 0,
        failures: 0,
        delays: 0,
        progress: Arc::clone(&range.progress),
        replay: range.lease.replay_until >= Some(range.messages[index].id.0),
    };
    let mut handling = match dispatch(session, delivery) {
        Ok(handling) => handling,
        Err(verdict) => return finish(session, &range, index, verdict),
    };
    match first_poll(&mut handling).await {
        Poll::Ready(verdict) => finish(session, &range, index, verdict),
        Poll::Pending => {
            let deadline = Deadline::new(session.timeout, range.messages[index].id, Arc::clone(&range.progress));
            let session = Arc::clone(session);
            tokio::spawn(async move {
                let verdict = rest(handling, deadline, &range.dropped).await;
                if let Some(verdict) = verdict {
                    finish(&session, &range, index, verdict);
                }
                drop(permit);
            });
        }
    }
}

fn finish(session: &Arc<Session>, range: &Arc<Range>, index: usize, verdict: Verdict) {
    let clean = verdict == Verdict::Done;
    let last = range.finish(index, verdict);
    // Before the range can be settled: the key's trouble is remembered until then.
    session.key_finished(range, index, clean);
    if last {
        session.finished(range);
    }
}

/// Decodes and calls the handler, whose synchronous part may panic as well.
pub(crate) fn dispatch(session: &Session, delivery: Delivery) -> Result<Handling, Verdict> {
    let handler = Arc::clone(&session.handler);
    match std::panic::catch_unwind(AssertUnwindSafe(|| handler.dispatch(delivery))) {
        Ok(Ok(handling)) => Ok(handling),
        Ok(Err(undecodable)) => Err(Verdict::dead(undecodable)),
        Err(panic) => Err(panicked(panic.as_ref())),
    }
}

/// Polls once, with the caller's waker.
async fn first_poll(handling: &mut Handling) -> Poll<Verdict> {
    std::future::poll_fn(|context| Poll::Ready(poll(handling.as_mut(), context))).await
}

fn poll(
    handling: Pin<&mut (dyn Future<Output = Result<Outcome, BoxError>> + Send)>,
    context: &mut std::task::Context<'_>,
) -> Poll<Verdict> {
    match std::panic::catch_unwind(AssertUnwindSafe(|| handling.poll(context))) {
        Ok(Poll::Ready(result)) => Poll::Ready(Verdict::of(result)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panic) => Poll::Ready(panicked(panic.as_ref())),
    }
}

/// Until when a handler may run: a timeout after its start, or after it last said that it is at work.
pub(crate) struct Deadline {
    timeout: Duration,
    message: MessageId,
    progress: Arc<Progress>,
}

impl Deadline {
    pub(crate) fn new(timeout: Duration, message: MessageId, progress: Arc<Progress>) -> Self {
        Self { timeout, message, progress }
    }

    async fn passed(&self) {
        let mut at = Instant::now() + self.timeout;
        loop {
            tokio::time::sleep_until(at.into()).await;
            match self.progress.last(self.message).map(|last| last + self.timeout) {
                Some(later) if later > at => at = later,
                _ => return,
            }
        }
    }
}

/// Runs a handler to its end, its deadline, or the loss of its lease; the latter has no verdict.
pub(crate) async fn rest(mut handling: Handling, deadline: Deadline, dropped: &Signal) -> Option<Verdict> {
    let running = std::future::poll_fn(|context| poll(handling.as_mut(), context));
    tokio::select! {
        verdict = running => Some(verdict),
        () = deadline.passed() => {
            let timeout = deadline.timeout;
            Some(Verdict::retry(format!("the handler was not done within its timeout of {timeout:?}")))
        }
        () = dropped.raised() => None,
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Verdict {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Verdict::retry(format!("the handler panicked: {}", text.unwrap_or("without a text")))
}
