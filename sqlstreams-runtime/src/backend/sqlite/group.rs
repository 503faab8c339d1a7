//! Consumer groups.

use sqlx::Row;

use super::{SqliteBackend, binding, error, value};
use crate::backend::{BindingParams, GroupParams, GroupRow, Registered, StartParams};
use crate::error::Error;
use crate::identity::GroupId;

const DOING: &str = "registering a group";

pub(super) async fn register(backend: &SqliteBackend, params: &GroupParams) -> Result<GroupRow, Error> {
    let state = backend.stream(params.stream);
    let statements = &state.statements;
    let timeout = value::wait(params.timeout);
    let mut tx = backend.connections.begin(DOING).await?;
    let create = sqlx::query(backend.shared.group_create.clone())
        .bind(params.stream.0)
        .bind(params.name.as_str())
        .bind(params.key_policy)
        .bind(&params.retry)
        .bind(timeout)
        .bind(params.delivery_log);
    let created = tx.run(create).await?.changes > 0;
    let lock = sqlx::query(statements.group_lock.clone())
        .bind(params.stream.0)
        .bind(params.name.as_str())
        .bind(&params.retry)
        .bind(timeout)
        .bind(params.delivery_log);
    let stored = stored(&tx.run(lock).await?.rows).map_err(|err| error::map(DOING, err))?;
    let id = stored.id;
    let declaration =
        |declared| BindingParams { stream: params.stream, group: id, presence: params.presence, declared };
    if stored.key_policy != params.key_policy {
        let bindings = binding::declare_on(backend, &mut tx, &declaration(None)).await?;
        return Ok(GroupRow { id, key_policy: stored.key_policy, registered: Registered::Joined, bindings });
    }
    let before = binding::declare_on(backend, &mut tx, &declaration(None)).await?;
    let bindings = binding::declare_on(backend, &mut tx, &declaration(Some(params.bindings.clone()))).await?;
    if stored.numbers_differ {
        let update = sqlx::query(backend.shared.group_update.clone())
            .bind(id.0)
            .bind(&params.retry)
            .bind(timeout)
            .bind(params.delivery_log);
        tx.run(update).await?;
    }
    if !stored.has_cursor {
        let (start, at) = start(params.start);
        tx.run(sqlx::query(statements.cursor_create.clone()).bind(id.0).bind(start).bind(at)).await?;
    }
    tx.commit().await?;
    let registered = match (created, stored.numbers_differ || bindings.patterns != before.patterns) {
        (true, _) => Registered::Created,
        (false, true) => Registered::Updated,
        (false, false) => Registered::Joined,
    };
    Ok(GroupRow { id, key_policy: stored.key_policy, registered, bindings })
}

struct Stored {
    id: GroupId,
    key_policy: String,
    numbers_differ: bool,
    has_cursor: bool,
}

fn stored(rows: &[sqlx::sqlite::SqliteRow]) -> Result<Stored, sqlx::Error> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok(Stored {
        id: GroupId(row.try_get(0)?),
        key_policy: row.try_get(1)?,
        numbers_differ: row.try_get(2)?,
        has_cursor: row.try_get(3)?,
    })
}

pub(super) fn start(start: StartParams) -> (&'static str, i64) {
    match start {
        StartParams::Beginning => ("beginning", 0),
        StartParams::Head => ("head", 0),
        StartParams::Id(id) => ("id", id.0),
        StartParams::Time(time) => ("time", time.0),
    }
}
