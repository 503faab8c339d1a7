//! Range leases after their claim.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::connection::Durability::{Durable, Relaxed};
use super::{SqliteBackend, error, value};
use crate::backend::{ExceptionNext, LeaseRow, ProgressParams, ReturnParams, SettleParams, logged};
use crate::error::Error;
use crate::identity::{GroupId, LeaseToken, PresenceId, StreamId};

pub(super) async fn find(
    backend: &SqliteBackend,
    stream: StreamId,
    token: LeaseToken,
) -> Result<Option<LeaseRow>, Error> {
    const DOING: &str = "looking for a lease";
    let state = backend.stream(stream);
    let find = sqlx::query(state.statements.lease_find.clone()).bind(token.0);
    let rows = backend.connections.read(DOING, find).await?;
    first(&rows).map_err(|err| error::map(DOING, err))
}

/// The lease in the first row, if there is one.
pub(super) fn first(rows: &[SqliteRow]) -> Result<Option<LeaseRow>, sqlx::Error> {
    let lease = |row: &SqliteRow| {
        Ok(LeaseRow {
            token: LeaseToken(row.try_get(0)?),
            low: row.try_get(1)?,
            high: row.try_get(2)?,
            only_version: row.try_get(3)?,
            reclaims: row.try_get(4)?,
            done: value::intervals(row, 5)?,
            replay_until: row.try_get(6)?,
        })
    };
    rows.first().map(lease).transpose()
}

pub(super) async fn settle(backend: &SqliteBackend, params: &SettleParams) -> Result<bool, Error> {
    let state = backend.stream(params.stream);
    let exceptions: Vec<_> = params
        .exceptions
        .iter()
        .map(|exception| {
            let (next, wait, error) = value::next(&exception.next);
            let key = exception.message_key.as_deref();
            (exception.message.0, exception.schema_version, key, next, wait, error, exception.held_to)
        })
        .collect();
    let logged = logged(params.log);
    let transactions = &state.transactions;
    // The messages that were handled are named where they are logged, or where dead letters of theirs may be left.
    let plain = logged.is_empty() && params.handled.is_empty();
    let text = if plain { &transactions.lease_settle } else { &transactions.lease_settle_logged };
    let settle = sqlx::query(text.clone())
        .bind(params.token.0)
        .bind(value::json(&exceptions))
        .bind(value::json(&params.parked))
        .bind(value::now(params.now));
    let settle = if plain {
        settle
    } else {
        let handled: Vec<_> = params.handled.iter().map(|message| message.0).collect();
        settle.bind(value::json(&handled)).bind(value::json(&logged))
    };
    let answer = backend.connections.write(Durable, "settling a range", settle).await?;
    Ok(!answer.rows.is_empty())
}

pub(super) async fn reclaim(
    backend: &SqliteBackend,
    stream: StreamId,
    group: GroupId,
    presence: PresenceId,
    token: LeaseToken,
) -> Result<Option<LeaseRow>, Error> {
    const DOING: &str = "taking over a range";
    let state = backend.stream(stream);
    let look = sqlx::query(state.statements.lease_reclaim_look.clone()).bind(group.0);
    if !backend.finds(DOING, look).await? {
        return Ok(None);
    }
    let reclaim = sqlx::query(state.statements.lease_reclaim.clone()).bind(group.0).bind(token.0).bind(presence.0);
    let answer = backend.connections.write(Durable, DOING, reclaim).await?;
    first(&answer.rows).map_err(|err| error::map(DOING, err))
}

pub(super) async fn report(
    backend: &SqliteBackend,
    stream: StreamId,
    group: GroupId,
    presence: PresenceId,
    tokens: &[LeaseToken],
    progress: &[ProgressParams],
) -> Result<Vec<LeaseToken>, Error> {
    const DOING: &str = "reporting progress";
    let state = backend.stream(stream);
    let query = |sql: &sqlx::SqlStr| {
        sqlx::query(sql.clone())
            .bind(group.0)
            .bind(presence.0)
            .bind(value::tokens(tokens))
            .bind(value::progress(progress.iter().map(|lease| (lease.token, &*lease.done))))
    };
    if progress.is_empty() {
        let rows = backend.connections.read(DOING, query(&state.statements.lease_report)).await?;
        let seen = reported(&rows).map_err(|err| error::map(DOING, err))?;
        if seen.iter().all(|(_, listed)| *listed) {
            return Ok(seen.into_iter().map(|(token, _)| token).collect());
        }
    }
    let answer = backend.connections.write(Relaxed, DOING, query(&state.transactions.lease_report)).await?;
    let seen = reported(&answer.rows).map_err(|err| error::map(DOING, err))?;
    Ok(seen.into_iter().filter(|(_, listed)| *listed).map(|(token, _)| token).collect())
}

fn reported(rows: &[SqliteRow]) -> Result<Vec<(LeaseToken, bool)>, sqlx::Error> {
    rows.iter().map(|row| Ok((LeaseToken(row.try_get(0)?), row.try_get(1)?))).collect()
}

pub(super) async fn give_back(backend: &SqliteBackend, stream: StreamId, leases: &[ReturnParams]) -> Result<(), Error> {
    let state = backend.stream(stream);
    let exceptions: Vec<_> = leases
        .iter()
        .flat_map(|lease| lease.exceptions.iter().map(|exception| (value::hex(lease.token.0), exception)))
        .filter(|(_, exception)| exception.next != ExceptionNext::Done)
        .map(|(token, exception)| {
            let (next, wait, error) = value::next(&exception.next);
            let key = exception.message_key.as_deref();
            (token, exception.message.0, exception.schema_version, key, next, wait, error, exception.held_to)
        })
        .collect();
    let done = leases.iter().map(|lease| (lease.token, &*lease.done));
    let give =
        sqlx::query(state.transactions.lease_return.clone()).bind(value::progress(done)).bind(value::json(&exceptions));
    backend.connections.write(Durable, "giving ranges back", give).await.map(|_| ())
}
