//! The rows by which consuming processes are known to be alive.

use std::time::Duration;

use super::connection::Durability::Relaxed;
use super::{SqliteBackend, value};
use crate::backend::PresenceParams;
use crate::error::Error;
use crate::identity::PresenceId;

const DOING: &str = "keeping this process present";

pub(super) async fn enter(backend: &SqliteBackend, params: &PresenceParams) -> Result<(), Error> {
    let enter = sqlx::query(backend.shared.presence_enter.clone())
        .bind(params.id.0)
        .bind(params.build)
        .bind(&params.process)
        .bind(&params.readable)
        .bind(value::wait(params.ttl));
    backend.connections.write(Relaxed, DOING, enter).await.map(|_| ())
}

pub(super) async fn renew(backend: &SqliteBackend, id: PresenceId, ttl: Duration) -> Result<bool, Error> {
    let renew = sqlx::query(backend.shared.presence_renew.clone()).bind(id.0).bind(value::wait(ttl));
    backend.connections.write(Relaxed, DOING, renew).await.map(|answer| answer.changes > 0)
}

pub(super) async fn leave(backend: &SqliteBackend, id: PresenceId) -> Result<(), Error> {
    let leave = sqlx::query(backend.shared.presence_leave.clone()).bind(id.0);
    backend.connections.write(Relaxed, DOING, leave).await.map(|_| ())
}
