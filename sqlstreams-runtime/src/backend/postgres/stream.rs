//! Streams and their payload versions.

use sqlx::{PgConnection, Row};

use super::{PostgresBackend, error};
use crate::backend::{StreamParams, StreamRow};
use crate::error::{Error, Kind};
use crate::identity::StreamId;

const DOING: &str = "registering a stream";

pub(super) async fn register(backend: &PostgresBackend, params: &StreamParams) -> Result<StreamRow, Error> {
    if let Some(row) = find(backend, params).await? {
        return Ok(row);
    }
    let mut connection = backend.engine(DOING).await?;
    match create(backend, &mut connection, params).await {
        Err(err) if error::is_permission(&err) => {
            connection.failed(DOING, err).await;
            return Err(may_not_register(params));
        }
        created => connection.answer(DOING, created).await?,
    }
    drop(connection);
    let row = find(backend, params).await?;
    row.ok_or_else(|| {
        Error::new(
            Kind::Declaration,
            "SQLS-0303",
            format!("stream \"{}\" was removed while it was being registered", params.name),
        )
    })
}

async fn create(
    backend: &PostgresBackend,
    connection: &mut PgConnection,
    params: &StreamParams,
) -> Result<(), sqlx::Error> {
    let id = backend
        .scalar::<i64>(&backend.shared.stream_create)
        .bind(params.name.as_str())
        .bind(params.message_key.as_deref())
        .bind(params.partition_size)
        .fetch_one(&mut *connection)
        .await?;
    let version = backend
        .query(&backend.shared.stream_version_create)
        .bind(id)
        .bind(params.schema_version.cast_signed())
        .bind(params.codec)
        .bind(&params.shape)
        .bind(&params.shape_hash[..])
        .bind(&params.json_schema);
    version.execute(connection).await.map(drop)
}

fn may_not_register(params: &StreamParams) -> Error {
    Error::new(
        Kind::Permission,
        "SQLS-0119",
        format!(
            "stream \"{}\" version {} is not registered, and this database role may not register it - register it \
             once as the installation's owner or as a role of `client.grants(RoleKind::Admin, role)`",
            params.name, params.schema_version
        ),
    )
}

/// The stored stream, if this version of it is stored as well.
async fn find(backend: &PostgresBackend, params: &StreamParams) -> Result<Option<StreamRow>, Error> {
    let mut connection = backend.engine(DOING).await?;
    let row = backend
        .query(&backend.shared.stream_find)
        .bind(params.name.as_str())
        .bind(params.schema_version.cast_signed())
        .fetch_optional(&mut *connection)
        .await
        .and_then(|row| match row {
            Some(row) if row.try_get::<Option<String>, _>(3)?.is_some() => Ok(Some(StreamRow {
                id: StreamId(row.try_get(0)?),
                message_key: row.try_get(1)?,
                partition_size: row.try_get(2)?,
                shape: row.try_get(3)?,
                codec: row.try_get(4)?,
            })),
            _ => Ok(None),
        });
    connection.answer(DOING, row).await
}
