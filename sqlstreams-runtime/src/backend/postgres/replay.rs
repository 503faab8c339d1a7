//! Moves of a group that exists.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::{PostgresBackend, StreamState, group, value};
use crate::backend::{ReplayParams, ReplayRow, ReplayTouched, ReplayWay, missing_group};
use crate::error::Error;
use crate::identity::{GroupId, StreamId};

pub(super) async fn look(backend: &PostgresBackend, params: &ReplayParams) -> Result<ReplayRow, Error> {
    const DOING: &str = "looking what a move of a group would do";
    let state = backend.stream(params.stream);
    let mut connection = backend.engine(DOING).await?;
    let row = look_on(backend, &state, &mut connection, params).await;
    connection.answer(DOING, row).await?.ok_or_else(|| missing_group(params.group))
}

async fn look_on(
    backend: &PostgresBackend,
    state: &StreamState,
    connection: &mut PgConnection,
    params: &ReplayParams,
) -> Result<Option<ReplayRow>, sqlx::Error> {
    let Some(seen) = seek(backend, state, connection, params).await? else { return Ok(None) };
    let row = backend
        .query(&state.statements.replay_count)
        .bind(params.group.0)
        .bind(seen.target)
        .bind(seen.target.min(seen.claimed))
        .bind(seen.target.max(seen.claimed))
        .fetch_one(connection)
        .await?;
    let count = |column: usize| row.try_get::<i64, _>(column).map(i64::cast_unsigned);
    let touched = ReplayTouched {
        ranges: count(1)?,
        ranges_cut: count(2)?,
        waiting: count(4)?,
        lanes: count(5)?,
        lanes_cut: count(6)?,
        dead_letters: count(8)?,
        parked: count(9)?,
        parked_cut: count(10)?,
    };
    Ok(Some(ReplayRow { messages: count(0)?, touched, running: count(3)? + count(7)?, ..seen }))
}

async fn seek(
    backend: &PostgresBackend,
    state: &StreamState,
    connection: &mut PgConnection,
    params: &ReplayParams,
) -> Result<Option<ReplayRow>, sqlx::Error> {
    let (to, place) = group::start(params.to);
    let row = backend
        .query(&state.statements.replay_seek)
        .bind(params.group.0)
        .bind(to)
        .bind(place)
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(seen).transpose()
}

fn seen(row: &PgRow) -> Result<ReplayRow, sqlx::Error> {
    Ok(ReplayRow {
        claimed: row.try_get(0)?,
        wanted: row.try_get(1)?,
        target: row.try_get(2)?,
        first: row.try_get(3)?,
        head: row.try_get(4)?,
        ..ReplayRow::default()
    })
}

pub(super) async fn move_to(backend: &PostgresBackend, params: &ReplayParams) -> Result<ReplayRow, Error> {
    const DOING: &str = "moving a group";
    let mut connection = backend.transaction(DOING).await?;
    let row = move_on(backend, &mut connection, params).await;
    if row.as_ref().is_ok_and(|row| row.is_none_or(|row| !row.moved)) {
        // It may have changed something before it saw that it must not.
        connection.undo(DOING).await?;
    }
    connection.answer(DOING, row).await?.ok_or_else(|| missing_group(params.group))
}

async fn move_on(
    backend: &PostgresBackend,
    tx: &mut PgConnection,
    params: &ReplayParams,
) -> Result<Option<ReplayRow>, sqlx::Error> {
    let state = backend.stream(params.stream);
    backend.query(&backend.shared.replay_gate).bind(params.group.0).execute(&mut *tx).await?;
    if !lock(backend, &state, tx, params.group).await? {
        return Ok(None);
    }
    let Some(mut row) = seek(backend, &state, tx, params).await? else { return Ok(None) };
    if !params.goes(row.claimed, row.wanted) || row.target == row.claimed {
        return Ok(Some(row));
    }
    match params.way {
        ReplayWay::Back { keep_dead_letters, only_idle } => {
            lease(backend, &state, tx, params.group, &mut row).await?;
            exception(backend, &state, tx, params.group, (row.target, keep_dead_letters), &mut row).await?;
            if only_idle && row.running > 0 {
                return Ok(Some(row));
            }
            parked(backend, &state, tx, params.group, &mut row).await?;
        }
        ReplayWay::Forward { discard_waiting: true } => {
            exception(backend, &state, tx, params.group, (0, true), &mut row).await?;
        }
        ReplayWay::Forward { discard_waiting: false } => {}
    }
    let to = backend.query(&state.statements.replay_move).bind(params.group.0).bind(row.target);
    to.execute(&mut *tx).await?;
    row.moved = true;
    Ok(Some(row))
}

/// Takes the claim lock; false when the group has no cursor.
async fn lock(
    backend: &PostgresBackend,
    state: &StreamState,
    tx: &mut PgConnection,
    group: GroupId,
) -> Result<bool, sqlx::Error> {
    loop {
        let lock = backend.query(&state.statements.replay_lock).bind(group.0);
        if lock.fetch_optional(&mut *tx).await?.is_some() {
            return Ok(true);
        }
        // Either another version came, or there is none at all.
        let position = backend.query(&state.statements.cursor_position).bind(group.0);
        if position.fetch_optional(&mut *tx).await?.is_none() {
            return Ok(false);
        }
    }
}

async fn lease(
    backend: &PostgresBackend,
    state: &StreamState,
    tx: &mut PgConnection,
    group: GroupId,
    row: &mut ReplayRow,
) -> Result<(), sqlx::Error> {
    let lease = backend.query(&state.statements.replay_lease).bind(group.0).bind(row.target);
    let answer = lease.fetch_one(&mut *tx).await?;
    let count = |column: usize| answer.try_get::<i64, _>(column).map(i64::cast_unsigned);
    row.touched.ranges = count(0)?;
    row.touched.ranges_cut = count(1)?;
    row.running += count(2)?;
    Ok(())
}

/// Messages in trouble above `target`.
async fn exception(
    backend: &PostgresBackend,
    state: &StreamState,
    tx: &mut PgConnection,
    group: GroupId,
    (target, keep_dead_letters): (i64, bool),
    row: &mut ReplayRow,
) -> Result<(), sqlx::Error> {
    let mut lanes: Vec<i64> = Vec::new();
    loop {
        let lock = backend.scalar(&state.statements.replay_lane).bind(group.0).bind(target);
        let locked: Vec<i64> = lock.fetch_all(&mut *tx).await?;
        if locked == lanes {
            break;
        }
        lanes = locked;
    }
    let exception = backend.query(&state.statements.replay_exception);
    let exception = exception.bind(group.0).bind(target).bind(keep_dead_letters);
    let answer = exception.fetch_one(&mut *tx).await?;
    let count = |column: usize| answer.try_get::<i64, _>(column).map(i64::cast_unsigned);
    row.touched.waiting = count(0)?;
    row.touched.lanes = count(1)?;
    row.touched.lanes_cut = count(2)?;
    row.touched.dead_letters = count(3)?;
    row.running += count(4)?;
    Ok(())
}

async fn parked(
    backend: &PostgresBackend,
    state: &StreamState,
    tx: &mut PgConnection,
    group: GroupId,
    row: &mut ReplayRow,
) -> Result<(), sqlx::Error> {
    let parked = backend.query(&state.statements.replay_parked).bind(group.0).bind(row.target);
    let answer = parked.fetch_one(&mut *tx).await?;
    row.touched.parked = answer.try_get::<i64, _>(0)?.cast_unsigned();
    row.touched.parked_cut = answer.try_get::<i64, _>(1)?.cast_unsigned();
    Ok(())
}

pub(super) async fn pause(
    backend: &PostgresBackend,
    stream: StreamId,
    group: GroupId,
    length: Option<Duration>,
) -> Result<(), Error> {
    const DOING: &str = "pausing a group";
    let mut connection = backend.transaction(DOING).await?;
    let paused = pause_on(backend, &mut connection, (stream, group), length).await;
    if connection.answer(DOING, paused).await? { Ok(()) } else { Err(missing_group(group)) }
}

async fn pause_on(
    backend: &PostgresBackend,
    tx: &mut PgConnection,
    (stream, group): (StreamId, GroupId),
    length: Option<Duration>,
) -> Result<bool, sqlx::Error> {
    let state = backend.stream(stream);
    if !lock(backend, &state, tx, group).await? {
        return Ok(false);
    }
    let pause = backend.query(&state.statements.replay_pause);
    pause.bind(group.0).bind(length.map(value::wait)).execute(&mut *tx).await?;
    Ok(true)
}
