//! The installation's version.

use sqlx::{PgConnection, Row, SqlStr};

use super::statements::SharedStatements;
use super::{PostgresBackend, error};
use crate::backend::template::Names;
use crate::error::Error;
use crate::migrate::{self, Applied, BUILD, Migration, check_applied, missing_installation};

pub(super) const MIGRATING: &str = "migrating";
pub(super) const CHECKING: &str = "checking the installation";

/// The migrations of this backend, oldest first, with `{schema}` unfilled.
pub(crate) const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "installation",
    oldest_build: "0.1.0",
    sql: include_str!("migrations/0001_installation.sql"),
}];

pub(crate) fn fill(schema: &str, migration: &Migration) -> SqlStr {
    Names { schema, stream: 0 }.fill(migration.sql)
}

/// The text for a person who migrates by hand.
pub(super) fn script(schema: &str, migration: &Migration) -> String {
    let shared = SharedStatements::fill(Names { schema, stream: 0 });
    let before = [shared.migration_schema.as_str(), shared.migration_table.as_str()];
    migrate::script(&before, fill(schema, migration).as_str(), shared.migration_record.as_str(), migration)
}

pub(super) async fn apply(backend: &PostgresBackend) -> Result<(), Error> {
    let mut connection = backend.transaction(MIGRATING).await?;
    let result = apply_on(backend, &mut connection).await;
    connection.answer(MIGRATING, result).await?
}

/// One transaction under a lock: two processes that migrate at once wait for each other.
async fn apply_on(backend: &PostgresBackend, connection: &mut PgConnection) -> Result<Result<(), Error>, sqlx::Error> {
    let shared = &backend.shared;
    backend.query(&shared.migration_lock).execute(&mut *connection).await?;
    backend.query(&shared.migration_schema).execute(&mut *connection).await?;
    backend.query(&shared.migration_table).execute(&mut *connection).await?;
    let applied = list(backend, connection).await?;
    if let Err(refused) = check_applied(&applied, &[]) {
        return Ok(Err(refused));
    }
    for migration in MIGRATIONS.iter().filter(|migration| !applied.iter().any(|a| a.version == migration.version)) {
        sqlx::raw_sql(fill(&backend.schema, migration)).execute(&mut *connection).await?;
        backend
            .query(&shared.migration_record)
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.oldest_build)
            .bind(BUILD)
            .execute(&mut *connection)
            .await?;
    }
    Ok(Ok(()))
}

pub(super) async fn check(backend: &PostgresBackend) -> Result<(), Error> {
    let mut connection = backend.engine(CHECKING).await?;
    match list(backend, &mut connection).await {
        Ok(applied) => {
            connection.answer(CHECKING, Ok(applied)).await.and_then(|applied| check_applied(&applied, MIGRATIONS))
        }
        Err(err) if error::is_missing_table(&err) => {
            Err(missing_installation(&format!("schema \"{}\"", backend.schema)))
        }
        Err(err) => Err(connection.failed(CHECKING, err).await),
    }
}

async fn list(backend: &PostgresBackend, connection: &mut PgConnection) -> Result<Vec<Applied>, sqlx::Error> {
    let rows = backend.query(&backend.shared.migration_list).fetch_all(connection).await?;
    rows.iter().map(|row| Ok(Applied { version: row.try_get(0)?, oldest_build: row.try_get(1)? })).collect()
}
