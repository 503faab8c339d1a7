//! Who runs which maintenance task.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::connection::Durability::{Durable, Relaxed};
use super::{SqliteBackend, error, value};
use crate::backend::{WorkerLookParams, WorkerLookRow, WorkerNames, WorkerRow, WorkerStateRow};
use crate::error::Error;
use crate::identity::{GroupId, PresenceId, StreamId, WorkerId, WorkerToken};
use crate::time::Timestamp;

pub(super) async fn declare(backend: &SqliteBackend, names: WorkerNames) -> Result<(), Error> {
    let mut tx = backend.connections.begin("declaring workers").await?;
    for statement in [&backend.shared.worker_declare, &backend.shared.worker_declare_group] {
        let declare =
            sqlx::query(statement.clone()).bind(value::json(&names.of_streams)).bind(value::json(&names.of_groups));
        tx.run(declare).await?;
    }
    tx.commit().await
}

pub(super) async fn look(backend: &SqliteBackend, params: &WorkerLookParams) -> Result<WorkerLookRow, Error> {
    const DOING: &str = "looking for workers to run";
    let look = sqlx::query(backend.shared.worker_look.clone())
        .bind(params.owner.0)
        .bind(value::ids(params.held.iter().map(|token| token.0)))
        .bind(value::json(&params.names.of_streams))
        .bind(value::json(&params.names.of_groups))
        .bind(value::clock(params.now).0);
    let rows = backend.connections.read(DOING, look).await?;
    seen(&rows).map_err(|err| error::map(DOING, err))
}

fn seen(rows: &[SqliteRow]) -> Result<WorkerLookRow, sqlx::Error> {
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
    backend: &SqliteBackend,
    owner: PresenceId,
    workers: &[(WorkerId, WorkerToken)],
    now: Option<Timestamp>,
) -> Result<Vec<WorkerToken>, Error> {
    const DOING: &str = "taking workers";
    if workers.is_empty() {
        return Ok(Vec::new());
    }
    let wanted: Vec<_> = workers.iter().map(|(id, token)| (id.0, token.0.simple().to_string())).collect();
    let take = sqlx::query(backend.shared.worker_take.clone())
        .bind(owner.0)
        .bind(value::json(&wanted))
        .bind(value::clock(now).0);
    let rows = backend.connections.write(Relaxed, DOING, take).await?.rows;
    let token = |row: &SqliteRow| row.try_get::<Uuid, _>(0).map(WorkerToken);
    rows.iter().map(token).collect::<Result<_, _>>().map_err(|err| error::map(DOING, err))
}

pub(super) async fn list(backend: &SqliteBackend, now: Option<Timestamp>) -> Result<Vec<WorkerStateRow>, Error> {
    const DOING: &str = "listing workers";
    let list = sqlx::query(backend.shared.worker_list.clone()).bind(value::clock(now).0);
    let rows = backend.connections.read(DOING, list).await?;
    rows.iter().map(state).collect::<Result<_, _>>().map_err(|err| error::map(DOING, err))
}

fn state(row: &SqliteRow) -> Result<WorkerStateRow, sqlx::Error> {
    Ok(WorkerStateRow {
        id: WorkerId(row.try_get(0)?),
        name: row.try_get(1)?,
        stream: row.try_get(2)?,
        group: row.try_get(3)?,
        target: row.try_get(4)?,
        running: row.try_get(5)?,
    })
}

pub(super) async fn target(backend: &SqliteBackend, id: WorkerId, target: i32) -> Result<bool, Error> {
    let set = sqlx::query(backend.shared.worker_target.clone()).bind(id.0).bind(target);
    let answer = backend.connections.write(Durable, "suspending or resuming a worker", set).await?;
    Ok(answer.changes > 0)
}
