//! Streams and their payload versions.

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, Sqlite};

use super::statements::family;
use super::{SqliteBackend, error};
use crate::backend::template::Names;
use crate::backend::{StreamParams, StreamRow};
use crate::error::{Error, Kind};
use crate::identity::StreamId;

const DOING: &str = "registering a stream";

pub(super) async fn register(backend: &SqliteBackend, params: &StreamParams) -> Result<StreamRow, Error> {
    let rows = backend.connections.read(DOING, find(backend, params)).await?;
    if let Some(row) = registered(&rows)? {
        return Ok(row);
    }
    let mut tx = backend.connections.begin(DOING).await?;
    let rows = tx.run(find(backend, params)).await?.rows;
    let id = match rows.first() {
        Some(row) => row.try_get(0).map_err(|err| error::map(DOING, err))?,
        None => {
            let create = sqlx::query(backend.shared.stream_create.clone())
                .bind(params.name.as_str())
                .bind(params.message_key.as_deref())
                .bind(params.partition_size);
            let rows = tx.run(create).await?.rows;
            let id: i64 = rows
                .first()
                .map_or(Err(sqlx::Error::RowNotFound), |row| row.try_get(0))
                .map_err(|err| error::map(DOING, err))?;
            let (tables, key) = family(Names { schema: &backend.prefix, stream: id });
            tx.run_script(tables).await?;
            if params.message_key.is_some() {
                tx.run_script(key).await?;
            }
            id
        }
    };
    let version = sqlx::query(backend.shared.stream_version_create.clone())
        .bind(id)
        .bind(params.schema_version.cast_signed())
        .bind(params.codec)
        .bind(&params.shape)
        .bind(&params.shape_hash[..])
        .bind(&params.json_schema);
    tx.run(version).await?;
    let rows = tx.run(find(backend, params)).await?.rows;
    tx.commit().await?;
    registered(&rows)?.ok_or_else(|| {
        Error::new(
            Kind::Database,
            "SQLS-0199",
            format!("stream \"{}\" was stored, but SQLite does not find it", params.name),
        )
    })
}

fn find<'a>(backend: &SqliteBackend, params: &'a StreamParams) -> Query<'a, Sqlite, SqliteArguments> {
    sqlx::query(backend.shared.stream_find.clone()).bind(params.name.as_str()).bind(params.schema_version.cast_signed())
}

/// The stored stream, if this version of it is stored as well.
fn registered(rows: &[SqliteRow]) -> Result<Option<StreamRow>, Error> {
    let read = |row: &SqliteRow| {
        let Some(shape) = row.try_get::<Option<String>, _>(3)? else { return Ok(None) };
        Ok(Some(StreamRow {
            id: StreamId(row.try_get(0)?),
            message_key: row.try_get(1)?,
            partition_size: row.try_get(2)?,
            shape,
            codec: row.try_get(4)?,
        }))
    };
    match rows.first() {
        Some(row) => read(row).map_err(|err| error::map(DOING, err)),
        None => Ok(None),
    }
}
