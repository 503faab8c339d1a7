//! Moves of a group that exists.

use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlStr};

use super::connection::Durability::Durable;
use super::connection::Transaction;
use super::{SqliteBackend, StreamState, error, group, value};
use crate::backend::{ReplayParams, ReplayRow, ReplayTouched, ReplayWay, missing_group};
use crate::error::Error;
use crate::identity::{GroupId, StreamId};

const MOVING: &str = "moving a group";

type Query = sqlx::query::Query<'static, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

pub(super) async fn look(backend: &SqliteBackend, params: &ReplayParams) -> Result<ReplayRow, Error> {
    const DOING: &str = "looking what a move of a group would do";
    let state = backend.stream(params.stream);
    let rows = backend.connections.read(DOING, seek(&state, params)).await?;
    let row = rows.first().map(seen).transpose().map_err(|err| error::map(DOING, err))?;
    let row = row.ok_or_else(|| missing_group(params.group))?;
    let rows = backend.connections.read(DOING, count(&state, params.group, &row)).await?;
    counted(&rows, row).map_err(|err| error::map(DOING, err))
}

fn seek(state: &StreamState, params: &ReplayParams) -> Query {
    let (to, place) = group::start(params.to);
    sqlx::query(state.statements.replay_seek.clone()).bind(params.group.0).bind(to).bind(place)
}

fn seen(row: &SqliteRow) -> Result<ReplayRow, sqlx::Error> {
    Ok(ReplayRow {
        claimed: row.try_get(0)?,
        wanted: row.try_get(1)?,
        target: row.try_get(2)?,
        first: row.try_get(3)?,
        head: row.try_get(4)?,
        ..ReplayRow::default()
    })
}

fn count(state: &StreamState, group: GroupId, row: &ReplayRow) -> Query {
    sqlx::query(state.statements.replay_count.clone())
        .bind(group.0)
        .bind(row.target)
        .bind(row.target.min(row.claimed))
        .bind(row.target.max(row.claimed))
}

fn counted(rows: &[SqliteRow], seen: ReplayRow) -> Result<ReplayRow, sqlx::Error> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
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
    Ok(ReplayRow { messages: count(0)?, touched, running: count(3)? + count(7)?, ..seen })
}

pub(super) async fn move_to(backend: &SqliteBackend, params: &ReplayParams) -> Result<ReplayRow, Error> {
    let state = backend.stream(params.stream);
    let mut tx = backend.connections.begin(MOVING).await?;
    let rows = tx.run(seek(&state, params)).await?.rows;
    let row = rows.first().map(seen).transpose().map_err(|err| error::map(MOVING, err))?;
    let mut row = row.ok_or_else(|| missing_group(params.group))?;
    if !params.goes(row.claimed, row.wanted) || row.target == row.claimed {
        return Ok(row);
    }
    match params.way {
        ReplayWay::Back { keep_dead_letters, only_idle } => {
            let rows = tx.run(count(&state, params.group, &row)).await?.rows;
            row = ReplayRow { messages: 0, ..counted(&rows, row).map_err(|err| error::map(MOVING, err))? };
            if only_idle && row.running > 0 {
                return Ok(row);
            }
            row.touched.dead_letters *= u64::from(!keep_dead_letters);
            back(&state, &mut tx, params.group, row.target, keep_dead_letters).await?;
        }
        ReplayWay::Forward { discard_waiting: true } => {
            let from = ReplayRow { target: 0, claimed: 0, ..row };
            let rows = tx.run(count(&state, params.group, &from)).await?.rows;
            let all = counted(&rows, from).map_err(|err| error::map(MOVING, err))?.touched;
            row.touched = ReplayTouched { waiting: all.waiting, lanes: all.lanes, ..ReplayTouched::default() };
            exceptions(&state, &mut tx, params.group, 0, true).await?;
        }
        ReplayWay::Forward { discard_waiting: false } => {}
    }
    tx.run(at(&state.statements.replay_move, params.group, row.target)).await?;
    tx.commit().await?;
    row.moved = true;
    Ok(row)
}

fn at(sql: &SqlStr, group: GroupId, target: i64) -> Query {
    sqlx::query(sql.clone()).bind(group.0).bind(target)
}

async fn back(
    state: &StreamState,
    tx: &mut Transaction<'_>,
    group: GroupId,
    target: i64,
    keep_dead_letters: bool,
) -> Result<(), Error> {
    let s = &state.statements;
    tx.run(at(&s.replay_lease, group, target)).await?;
    tx.run(at(&s.replay_lease_cut, group, target)).await?;
    exceptions(state, tx, group, target, keep_dead_letters).await?;
    tx.run(at(&s.replay_exception_cut, group, target)).await?;
    tx.run(at(&s.replay_parked, group, target)).await?;
    tx.run(at(&s.replay_parked_cut, group, target)).await?;
    Ok(())
}

async fn exceptions(
    state: &StreamState,
    tx: &mut Transaction<'_>,
    group: GroupId,
    target: i64,
    keep_dead_letters: bool,
) -> Result<(), Error> {
    let exceptions = at(&state.statements.replay_exception, group, target).bind(keep_dead_letters);
    tx.run(exceptions).await.map(drop)
}

pub(super) async fn pause(
    backend: &SqliteBackend,
    stream: StreamId,
    group: GroupId,
    length: Option<Duration>,
) -> Result<(), Error> {
    let state = backend.stream(stream);
    let pause = sqlx::query(state.statements.replay_pause.clone()).bind(group.0).bind(length.map(value::wait));
    let answer = backend.connections.write(Durable, "pausing a group", pause).await?;
    if answer.changes > 0 { Ok(()) } else { Err(missing_group(group)) }
}
