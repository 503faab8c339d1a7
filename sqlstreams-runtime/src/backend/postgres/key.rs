//! Message keys: what keeps them from running.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PostgresBackend;
use crate::backend::{KeyGateParams, KeyGateRow};
use crate::error::Error;
use crate::identity::{GroupId, LeaseToken, MessageId, StreamId};

const DOING: &str = "looking for busy keys";

pub(super) async fn gate(backend: &PostgresBackend, params: &KeyGateParams) -> Result<Vec<KeyGateRow>, Error> {
    let Some(highest) = params.keys.iter().map(|ask| ask.low).max() else { return Ok(Vec::new()) };
    let state = backend.stream(params.stream);
    let keys: Vec<&str> = params.keys.iter().map(|ask| &*ask.key).collect();
    let own: Vec<_> = params.own.iter().map(|token| token.0).collect();
    let mut connection = backend.engine(DOING).await?;
    let look = backend
        .query(&state.statements.key_gate_look)
        .bind(params.group.0)
        .bind(&keys)
        .bind(highest)
        .bind(&own)
        .fetch_one(&mut *connection)
        .await
        .and_then(|row| Look::read(&row));
    let look = match look {
        Ok(look) => look,
        Err(err) => return connection.answer(DOING, Err(err)).await,
    };
    if look.bounds.is_none() && look.ticketed.is_empty() {
        connection.answer(DOING, Ok(())).await?;
        return Ok(keys.iter().map(|key| look.row(key)).collect());
    }
    let (low, high) = look.bounds.unwrap_or_default();
    let rows = backend
        .query(&state.statements.key_gate)
        .bind(params.group.0)
        .bind(&keys)
        .bind(params.keys.iter().map(|ask| ask.low).collect::<Vec<_>>())
        .bind(&own)
        .bind(low)
        .bind(high)
        .bind(params.keys.iter().map(|ask| ask.message.map(|message| message.0)).collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await
        .and_then(|rows| rows.iter().map(gate_row).collect());
    connection.answer(DOING, rows).await
}

fn gate_row(row: &PgRow) -> Result<KeyGateRow, sqlx::Error> {
    Ok(KeyGateRow {
        laned: row.try_get(0)?,
        lane_runs: row.try_get(1)?,
        busy: row.try_get(2)?,
        ticketed: row.try_get(3)?,
    })
}

/// What a look answers: keys, and where lower ranges of others are.
struct Look {
    laned: Vec<String>,
    lane_runs: Vec<String>,
    ticketed: Vec<String>,
    bounds: Option<(i64, i64)>,
}

impl Look {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            laned: row.try_get(0)?,
            lane_runs: row.try_get(1)?,
            ticketed: row.try_get(2)?,
            bounds: Option::zip(row.try_get(3)?, row.try_get(4)?),
        })
    }

    /// Where nobody else works and nothing has a ticket.
    fn row(&self, key: &str) -> KeyGateRow {
        let holds = |keys: &[String]| keys.iter().any(|one| one == key);
        KeyGateRow { laned: holds(&self.laned), lane_runs: holds(&self.lane_runs), busy: false, ticketed: false }
    }
}

pub(super) async fn ticket(
    backend: &PostgresBackend,
    stream: StreamId,
    group: GroupId,
    token: LeaseToken,
    message: MessageId,
) -> Result<Option<i64>, Error> {
    const DOING: &str = "lining a message in trouble up";
    let state = backend.stream(stream);
    let mut connection = backend.engine(DOING).await?;
    let ticket = backend
        .scalar(&state.statements.key_ticket)
        .bind(group.0)
        .bind(token.0)
        .bind(message.0)
        .fetch_optional(&mut *connection)
        .await;
    connection.answer(DOING, ticket).await
}
