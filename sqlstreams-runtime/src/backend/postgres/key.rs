//! Message keys: what keeps them from running.

use sqlx::Row;

use super::PostgresBackend;
use crate::backend::{KeyGateParams, KeyGateRow};
use crate::error::Error;

const DOING: &str = "looking for busy keys";

pub(super) async fn gate(backend: &PostgresBackend, params: &KeyGateParams) -> Result<Vec<KeyGateRow>, Error> {
    let Some(highest) = params.keys.iter().map(|(_, low)| *low).max() else { return Ok(Vec::new()) };
    let state = backend.stream(params.stream);
    let keys: Vec<&str> = params.keys.iter().map(|(key, _)| &**key).collect();
    let own: Vec<_> = params.own.iter().map(|token| token.0).collect();
    let mut connection = backend.engine(DOING).await?;
    let look = sqlx::query(state.statements.key_gate_look.clone())
        .bind(params.group.0)
        .bind(&keys)
        .bind(highest)
        .bind(&own)
        .fetch_one(&mut *connection)
        .await
        .and_then(|row| Ok((row.try_get::<Vec<String>, _>(0)?, row.try_get(1)?, row.try_get(2)?)));
    let (laned, bounds): (Vec<String>, Option<(i64, i64)>) = match look {
        Ok((laned, low, high)) => (laned, Option::zip(low, high)),
        Err(err) => return connection.answer(DOING, Err(err)),
    };
    let Some((low, high)) = bounds else {
        drop(connection.answer(DOING, Ok(())));
        let row = |key: &&str| KeyGateRow { laned: laned.iter().any(|laned| laned == key), busy: false };
        return Ok(keys.iter().map(row).collect());
    };
    let lows: Vec<_> = params.keys.iter().map(|(_, low)| *low).collect();
    let rows = sqlx::query(state.statements.key_gate.clone())
        .bind(params.group.0)
        .bind(&keys)
        .bind(lows)
        .bind(&own)
        .bind(low)
        .bind(high)
        .fetch_all(&mut *connection)
        .await
        .and_then(|rows| {
            rows.iter().map(|row| Ok(KeyGateRow { laned: row.try_get(0)?, busy: row.try_get(1)? })).collect()
        });
    connection.answer(DOING, rows)
}
