//! The rows by which consuming processes are known to be alive.

use std::time::Duration;

use super::{PostgresBackend, value};
use crate::backend::PresenceParams;
use crate::error::Error;
use crate::identity::PresenceId;

const DOING: &str = "keeping this process present";

pub(super) async fn enter(backend: &PostgresBackend, params: &PresenceParams) -> Result<(), Error> {
    let mut connection = backend.engine(DOING).await?;
    let result = backend
        .query(&backend.shared.presence_enter)
        .bind(params.id.0)
        .bind(params.build)
        .bind(&params.process)
        .bind(&params.readable)
        .bind(value::wait(params.ttl))
        .execute(&mut *connection)
        .await;
    connection.answer(DOING, result.map(|_| ())).await
}

pub(super) async fn renew(backend: &PostgresBackend, id: PresenceId, ttl: Duration) -> Result<bool, Error> {
    let mut connection = backend.renewals(DOING).await?;
    let result =
        backend.query(&backend.shared.presence_renew).bind(id.0).bind(value::wait(ttl)).execute(&mut *connection).await;
    connection.answer(DOING, result.map(|done| done.rows_affected() > 0)).await
}

pub(super) async fn leave(backend: &PostgresBackend, id: PresenceId) -> Result<(), Error> {
    let mut connection = backend.engine(DOING).await?;
    let result = backend.query(&backend.shared.presence_leave).bind(id.0).execute(&mut *connection).await;
    connection.answer(DOING, result.map(|_| ())).await
}
