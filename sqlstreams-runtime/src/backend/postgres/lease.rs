//! Range leases after their claim.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{PostgresBackend, value};
use crate::backend::{ExceptionNext, ExceptionParams, LeaseRow, ProgressParams, ReturnParams, SettleParams, logged};
use crate::error::Error;
use crate::identity::{GroupId, LeaseToken, PresenceId, StreamId};

pub(super) async fn find(
    backend: &PostgresBackend,
    stream: StreamId,
    token: LeaseToken,
) -> Result<Option<LeaseRow>, Error> {
    const DOING: &str = "looking for a lease";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let row = backend
        .query(&state.statements.lease_find)
        .bind(token.0)
        .fetch_optional(&mut *connection)
        .await
        .and_then(|row| row.as_ref().map(lease).transpose());
    connection.answer(DOING, row).await
}

pub(super) fn lease(row: &PgRow) -> Result<LeaseRow, sqlx::Error> {
    let lows: Vec<i64> = row.try_get(5)?;
    let highs: Vec<i64> = row.try_get(6)?;
    Ok(LeaseRow {
        token: LeaseToken(row.try_get(0)?),
        low: row.try_get(1)?,
        high: row.try_get(2)?,
        only_version: row.try_get(3)?,
        reclaims: row.try_get(4)?,
        done: lows.into_iter().zip(highs).collect(),
        replay_until: row.try_get(7)?,
    })
}

pub(super) async fn settle(backend: &PostgresBackend, params: &SettleParams) -> Result<bool, Error> {
    const DOING: &str = "settling a range";
    let state = backend.stream(params.stream);
    let next: Vec<_> = params.exceptions.iter().map(|exception| next_row(&exception.next)).collect();
    let mut connection = backend.engine(DOING).await?;
    let gone = backend
        .query(&state.statements.lease_settle)
        .bind(params.token.0)
        .bind(params.exceptions.iter().map(|exception| exception.message.0).collect::<Vec<_>>())
        .bind(params.exceptions.iter().map(|exception| exception.schema_version.cast_signed()).collect::<Vec<_>>())
        .bind(params.exceptions.iter().map(|exception| exception.message_key.as_deref()).collect::<Vec<_>>())
        .bind(next.iter().map(|next| next.0).collect::<Vec<_>>())
        .bind(next.iter().map(|next| next.1).collect::<Vec<_>>())
        .bind(next.iter().map(|next| next.2).collect::<Vec<_>>())
        .bind(params.parked.iter().map(|parked| parked.0).collect::<Vec<_>>())
        .bind(params.parked.iter().map(|parked| parked.1).collect::<Vec<_>>())
        .bind(params.parked.iter().map(|parked| parked.2).collect::<Vec<_>>())
        .bind(value::now(params.now))
        .bind(params.exceptions.iter().map(|exception| exception.held_to).collect::<Vec<_>>())
        .bind(logged(params.log))
        .bind(params.handled.iter().map(|message| message.0).collect::<Vec<_>>())
        .fetch_one(&mut *connection)
        .await
        .and_then(|row| row.try_get::<i64, _>(0));
    connection.answer(DOING, gone.map(|gone| gone > 0)).await
}

/// (next, wait in microseconds, error) as the statements take them.
pub(super) fn next_row(next: &ExceptionNext) -> (&'static str, i64, Option<&str>) {
    match next {
        ExceptionNext::Retry { after, error } => ("retry", value::wait(*after), Some(error)),
        ExceptionNext::Later { after } => ("later", value::wait(*after), None),
        ExceptionNext::Dead { error } => ("dead", 0, Some(error)),
        ExceptionNext::Done => ("done", 0, None),
        ExceptionNext::Return => ("return", 0, None),
        ExceptionNext::Wait { after } => ("return", value::wait(*after), None),
    }
}

pub(super) async fn reclaim(
    backend: &PostgresBackend,
    stream: StreamId,
    group: GroupId,
    presence: PresenceId,
    token: LeaseToken,
) -> Result<Option<LeaseRow>, Error> {
    const DOING: &str = "taking over a range";
    let state = backend.stream(stream);
    let orphans = backend.wake.orphan_turn();
    let mut connection = backend.engine(DOING).await?;
    let row = backend
        .query(&state.statements.lease_reclaim)
        .bind(group.0)
        .bind(token.0)
        .bind(presence.0)
        .bind(orphans)
        .fetch_optional(&mut *connection)
        .await
        .and_then(|row| row.as_ref().map(lease).transpose());
    connection.answer(DOING, row).await
}

pub(super) async fn report(
    backend: &PostgresBackend,
    stream: StreamId,
    group: GroupId,
    presence: PresenceId,
    tokens: &[LeaseToken],
    progress: &[ProgressParams],
) -> Result<Vec<LeaseToken>, Error> {
    const DOING: &str = "reporting progress";
    let state = backend.stream(stream);
    let (moved, done) = intervals(progress);
    let mut connection = backend.renewals(DOING).await?;
    let owned = backend
        .scalar(&state.statements.lease_report)
        .bind(group.0)
        .bind(presence.0)
        .bind(tokens.iter().map(|token| token.0).collect::<Vec<_>>())
        .bind(moved)
        .bind(done)
        .fetch_all(&mut *connection)
        .await;
    let owned: Vec<uuid::Uuid> = connection.answer(DOING, owned).await?;
    Ok(owned.into_iter().map(LeaseToken).collect())
}

pub(super) async fn give_back(
    backend: &PostgresBackend,
    stream: StreamId,
    leases: &[ReturnParams],
) -> Result<(), Error> {
    const DOING: &str = "giving ranges back";
    let state = backend.stream(stream);
    let (tokens, done): (Vec<_>, Vec<_>) =
        leases.iter().map(|lease| (lease.token.0, value::multirange(&lease.done))).unzip();
    let exceptions: Vec<(uuid::Uuid, &ExceptionParams)> =
        leases.iter().flat_map(|lease| lease.exceptions.iter().map(|exception| (lease.token.0, exception))).collect();
    let next: Vec<_> = exceptions.iter().map(|(_, exception)| next_row(&exception.next)).collect();
    let mut connection = backend.engine(DOING).await?;
    let result = backend
        .query(&state.statements.lease_return)
        .bind(tokens)
        .bind(done)
        .bind(exceptions.iter().map(|(token, _)| *token).collect::<Vec<_>>())
        .bind(exceptions.iter().map(|(_, exception)| exception.message.0).collect::<Vec<_>>())
        .bind(exceptions.iter().map(|(_, exception)| exception.schema_version.cast_signed()).collect::<Vec<_>>())
        .bind(exceptions.iter().map(|(_, exception)| exception.message_key.as_deref()).collect::<Vec<_>>())
        .bind(next.iter().map(|next| next.0).collect::<Vec<_>>())
        .bind(next.iter().map(|next| next.1).collect::<Vec<_>>())
        .bind(next.iter().map(|next| next.2).collect::<Vec<_>>())
        .bind(exceptions.iter().map(|(_, exception)| exception.held_to).collect::<Vec<_>>())
        .execute(&mut *connection)
        .await;
    connection.answer(DOING, result.map(|_| ())).await
}

fn intervals(progress: &[ProgressParams]) -> (Vec<uuid::Uuid>, Vec<String>) {
    progress.iter().map(|lease| (lease.token.0, value::multirange(&lease.done))).unzip()
}
