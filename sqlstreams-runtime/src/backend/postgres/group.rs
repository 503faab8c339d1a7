//! Consumer groups.

use sqlx::{PgConnection, Row};

use super::{PostgresBackend, binding, value};
use crate::backend::{BindingParams, GroupParams, GroupRow, Registered, StartParams};
use crate::error::Error;
use crate::identity::GroupId;

const DOING: &str = "registering a group";

pub(super) async fn register(backend: &PostgresBackend, params: &GroupParams) -> Result<GroupRow, Error> {
    let mut connection = backend.transaction(DOING).await?;
    let row = register_on(backend, &mut connection, params).await;
    connection.answer(DOING, row).await
}

async fn register_on(
    backend: &PostgresBackend,
    connection: &mut PgConnection,
    params: &GroupParams,
) -> Result<GroupRow, sqlx::Error> {
    let statements = &backend.stream(params.stream).statements;
    let timeout = value::wait(params.timeout);
    let created = backend
        .query(&backend.shared.group_create)
        .bind(params.stream.0)
        .bind(params.name.as_str())
        .bind(params.key_policy)
        .bind(&params.retry)
        .bind(timeout)
        .bind(params.delivery_log)
        .execute(&mut *connection)
        .await?;
    let row = backend
        .query(&statements.group_lock)
        .bind(params.stream.0)
        .bind(params.name.as_str())
        .bind(&params.retry)
        .bind(timeout)
        .bind(params.delivery_log)
        .fetch_one(&mut *connection)
        .await?;
    let id = GroupId(row.try_get(0)?);
    let key_policy: String = row.try_get(1)?;
    let numbers_differ: bool = row.try_get(2)?;
    let has_cursor: bool = row.try_get(3)?;
    let declaration =
        |declared| BindingParams { stream: params.stream, group: id, presence: params.presence, declared };
    if key_policy != params.key_policy {
        let bindings = binding::declare_on(backend, connection, &declaration(None)).await?;
        return Ok(GroupRow { id, key_policy, registered: Registered::Joined, bindings });
    }
    let before = binding::declare_on(backend, connection, &declaration(None)).await?;
    let bindings = binding::declare_on(backend, connection, &declaration(Some(params.bindings.clone()))).await?;
    if numbers_differ {
        let update = backend
            .query(&backend.shared.group_update)
            .bind(id.0)
            .bind(&params.retry)
            .bind(timeout)
            .bind(params.delivery_log);
        update.execute(&mut *connection).await?;
    }
    if !has_cursor {
        let (start, at) = start(params.start);
        let create = backend.query(&statements.cursor_create).bind(id.0).bind(start).bind(at);
        create.execute(&mut *connection).await?;
    }
    let registered = match (created.rows_affected() > 0, numbers_differ || bindings.patterns != before.patterns) {
        (true, _) => Registered::Created,
        (false, true) => Registered::Updated,
        (false, false) => Registered::Joined,
    };
    Ok(GroupRow { id, key_policy, registered, bindings })
}

pub(super) fn start(start: StartParams) -> (&'static str, i64) {
    match start {
        StartParams::Beginning => ("beginning", 0),
        StartParams::Head => ("head", 0),
        StartParams::Id(id) => ("id", id.0),
        StartParams::Time(time) => ("time", time.0),
    }
}
