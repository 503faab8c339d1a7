//! Takes over what others left: ranges whose owner is gone, and parked ranges that this build can read.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_schema::DeliveryLog;

use super::claim::{admit, bindings, find, range, read};
use super::gate;
use super::range::contains;
use super::session::{Session, lock};
use crate::backend::{ClaimParams, ExceptionNext, LeaseRow, ReadParams, SettleParams};
use crate::error::Error;

const EVERY: Duration = Duration::from_secs(1);
/// Every so many looks, also for parked ranges: a build that reads them comes with a deploy.
const PARKED_EVERY: u32 = 4;
/// After this many lost owners a range's messages are handled one by one, each with a row of its own.
const MAX_RECLAIMS: i32 = 3;

/// Looks for abandoned work until the session closes.
pub(crate) async fn run(session: Arc<Session>) {
    let mut turn = 0u32;
    while !session.closing.is_raised() {
        match step(&session, turn.is_multiple_of(PARKED_EVERY)).await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(err) => tracing::warn!(stream = %session.stream_name, group = %session.group_name, error = %err,
                "looking for abandoned ranges; trying again"),
        }
        turn = turn.wrapping_add(1);
        // Jitter: processes that started together should not look together.
        let wait = EVERY.mul_f64(rand::random_range(0.8..1.2));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = session.closing.raised() => {}
        }
    }
}

/// Takes at most one range of each kind; true when there may be more.
async fn step(session: &Arc<Session>, also_parked: bool) -> Result<bool, Error> {
    if session.ranges_waiting() > 4 || !session.is_present() {
        return Ok(false);
    }
    let reclaimed = reclaim(session).await?;
    let parked = also_parked && take_parked(session).await?;
    Ok(reclaimed || parked)
}

async fn reclaim(session: &Arc<Session>) -> Result<bool, Error> {
    let token = session.mint();
    let taken = session.store.lease_reclaim(session.stream, session.group, session.presence, token).await;
    let taken = match taken {
        Err(err) if !err.outcome_known() => find(session, token).await,
        taken => taken,
    };
    match taken {
        Ok(Some(lease)) if lease.reclaims >= MAX_RECLAIMS => quarantine(session, lease).await.map(|()| true),
        Ok(Some(lease)) => admit(session, lease).await.map(|()| true),
        Ok(None) => {
            session.forget(token);
            Ok(false)
        }
        Err(err) => {
            session.forget(token);
            Err(err)
        }
    }
}

async fn take_parked(session: &Arc<Session>) -> Result<bool, Error> {
    let token = session.mint();
    let params = ClaimParams {
        stream: session.stream,
        group: session.group,
        presence: session.presence,
        token,
        width: lock(&session.pace).width(),
        settled: Vec::new(),
        durable: true,
    };
    let taken = match session.store.parked_take(&params, &session.versions).await {
        Err(err) if !err.outcome_known() => find(session, token).await,
        taken => taken,
    };
    match taken {
        Ok(Some(lease)) => admit(session, lease).await.map(|()| true),
        Ok(None) => {
            session.forget(token);
            Ok(false)
        }
        Err(err) => {
            session.forget(token);
            Err(err)
        }
    }
}

/// Gives every message of a range that keeps losing its owners a row of its own.
async fn quarantine(session: &Arc<Session>, lease: LeaseRow) -> Result<(), Error> {
    tracing::warn!(stream = %session.stream_name, group = %session.group_name, low = lease.low, high = lease.high,
        reclaims = lease.reclaims, "a range lost its process again and again; its messages are handled one by one");
    let bindings = bindings(session, &lease).await?;
    if session.is_ordered() {
        let messages = read(session, &lease, &bindings).await?;
        return gate::admit(session, range(session, lease, messages).held()).await;
    }
    let params = ReadParams {
        stream: session.stream,
        low: lease.low,
        high: lease.high,
        versions: session.versions.clone(),
        only_version: lease.only_version,
        bindings: bindings.to_vec(),
    };
    let messages = session.store.message_read(&params).await?;
    let (readable, unreadable): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| session.versions.contains(&message.schema_version.cast_signed()));
    let mut parked: Vec<_> =
        unreadable.iter().map(|message| (message.schema_version.cast_signed(), lease.low, lease.high)).collect();
    parked.sort_unstable();
    parked.dedup();
    let exceptions = readable
        .iter()
        .filter(|message| !contains(&lease.done, message.id.0))
        .map(|message| super::settle::exception(message, ExceptionNext::Return))
        .collect();
    let params = SettleParams {
        stream: session.stream,
        token: lease.token,
        exceptions,
        parked,
        // Nothing of it ran to an end.
        log: DeliveryLog::Off,
        handled: Vec::new(),
        now: None,
    };
    session.store.lease_settle(&params).await?;
    session.forget(lease.token);
    session.trouble.notify_one();
    Ok(())
}
