//! Who runs which maintenance task.

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{PostgresBackend, value};
use crate::backend::{WorkerLookParams, WorkerLookRow, WorkerNames, WorkerRow, WorkerStateRow};
use crate::error::Error;
use crate::identity::{GroupId, PresenceId, StreamId, WorkerId, WorkerToken};
use crate::time::Timestamp;

pub(super) async fn declare(backend: &PostgresBackend, names: WorkerNames) -> Result<(), Error> {
    const DOING: &str = "declaring workers";
    let mut connection = backend.engine(DOING).await?;
    let declare = backend.query(&backend.shared.worker_declare).bind(names.of_streams).bind(names.of_groups);
    let result = declare.execute(&mut *connection).await;
    connection.answer(DOING, result.map(|_| ())).await
}

pub(super) async fn look(backend: &PostgresBackend, params: &WorkerLookParams) -> Result<WorkerLookRow, Error> {
    const DOING: &str = "looking for workers to run";
    let held: Vec<_> = params.held.iter().map(|token| token.0).collect();
    let mut connection = backend.engine(DOING).await?;
    let rows = backend
        .query(&backend.shared.worker_look)
        .bind(params.owner.0)
        .bind(held)
        .bind(params.names.of_streams)
        .bind(params.names.of_groups)
        .bind(value::now(params.now))
        .fetch_all(&mut *connection)
        .await
        .and_then(|rows| seen(&rows));
    connection.answer(DOING, rows).await
}

fn seen(rows: &[PgRow]) -> Result<WorkerLookRow, sqlx::Error> {
    let mut seen = WorkerLookRow::default();
    for row in rows {
        match row.try_get(0)? {
            "free" => seen.free.push(WorkerRow {
                id: WorkerId(row.try_get(1)?),
                name: row.try_get(2)?,
                stream: StreamId(row.try_get(3)?),
                group: row.try_get::<Option<i64>, _>(4)?.map(GroupId),
            }),
            "lost" => seen.lost.push(WorkerToken(row.try_get(5)?)),
            _ => seen.undeclared = true,
        }
    }
    Ok(seen)
}

pub(super) async fn take(
    backend: &PostgresBackend,
    owner: PresenceId,
    workers: &[(WorkerId, WorkerToken)],
    now: Option<Timestamp>,
) -> Result<Vec<WorkerToken>, Error> {
    const DOING: &str = "taking workers";
    let (ids, tokens): (Vec<i64>, Vec<Uuid>) = workers.iter().map(|(id, token)| (id.0, token.0)).unzip();
    let mut connection = backend.engine(DOING).await?;
    let taken = backend
        .scalar(&backend.shared.worker_take)
        .bind(owner.0)
        .bind(ids)
        .bind(tokens)
        .bind(value::now(now))
        .fetch_all(&mut *connection)
        .await;
    connection.answer(DOING, taken).await.map(|taken| taken.into_iter().map(WorkerToken).collect())
}

pub(super) async fn list(backend: &PostgresBackend, now: Option<Timestamp>) -> Result<Vec<WorkerStateRow>, Error> {
    const DOING: &str = "listing workers";
    let mut connection = backend.engine(DOING).await?;
    let list = backend.query(&backend.shared.worker_list).bind(value::now(now));
    let rows = list.fetch_all(&mut *connection).await.and_then(|rows| rows.iter().map(state).collect());
    connection.answer(DOING, rows).await
}

fn state(row: &PgRow) -> Result<WorkerStateRow, sqlx::Error> {
    Ok(WorkerStateRow {
        id: WorkerId(row.try_get(0)?),
        name: row.try_get(1)?,
        stream: row.try_get(2)?,
        group: row.try_get(3)?,
        target: row.try_get(4)?,
        running: row.try_get(5)?,
    })
}

pub(super) async fn target(backend: &PostgresBackend, id: WorkerId, target: i32) -> Result<bool, Error> {
    const DOING: &str = "suspending or resuming a worker";
    let mut connection = backend.engine(DOING).await?;
    let set = backend.query(&backend.shared.worker_target).bind(id.0).bind(target);
    let result = set.execute(&mut *connection).await;
    connection.answer(DOING, result.map(|done| done.rows_affected() > 0)).await
}
