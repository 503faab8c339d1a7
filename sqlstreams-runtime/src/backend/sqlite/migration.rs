//! The installation's version.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlStr};

use super::statements::SharedStatements;
use super::{SqliteBackend, error};
use crate::backend::template::Names;
use crate::error::Error;
use crate::migrate::{self, Applied, BUILD, Migration, check_applied, missing_installation};

/// The migrations of this backend, oldest first, with `{schema}` unfilled.
pub(crate) const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "installation",
    oldest_build: "0.1.0",
    sql: include_str!("migrations/0001_installation.sql"),
}];

pub(crate) fn fill(prefix: &str, migration: &Migration) -> SqlStr {
    Names { schema: prefix, stream: 0 }.fill(migration.sql)
}

/// The text for a person who migrates by hand.
pub(super) fn script(prefix: &str, migration: &Migration) -> String {
    let shared = SharedStatements::fill(Names { schema: prefix, stream: 0 });
    let before = [shared.migration_table.as_str()];
    migrate::script(&before, fill(prefix, migration).as_str(), shared.migration_record.as_str(), migration)
}

/// One immediate transaction: two processes that migrate at once wait for each other.
pub(super) async fn apply(backend: &SqliteBackend) -> Result<(), Error> {
    const DOING: &str = "migrating";
    let shared = &backend.shared;
    let mut tx = backend.connections.begin(DOING).await?;
    tx.run(sqlx::query(shared.migration_table.clone())).await?;
    let rows = tx.run(sqlx::query(shared.migration_list.clone())).await?.rows;
    let applied = read(&rows).map_err(|err| error::map(DOING, err))?;
    check_applied(&applied, &[])?;
    for migration in MIGRATIONS.iter().filter(|migration| !applied.iter().any(|a| a.version == migration.version)) {
        tx.run_script(fill(&backend.prefix, migration)).await?;
        let record = sqlx::query(shared.migration_record.clone())
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.oldest_build)
            .bind(BUILD);
        tx.run(record).await?;
    }
    tx.commit().await
}

pub(super) async fn check(backend: &SqliteBackend) -> Result<(), Error> {
    const DOING: &str = "checking the installation";
    let list = sqlx::query(backend.shared.migration_list.clone());
    let rows = match backend.connections.read(DOING, list).await {
        Err(err) if error::says_missing_table(&err) => {
            return Err(missing_installation(&format!("the database file with the prefix \"{}\"", backend.prefix)));
        }
        rows => rows?,
    };
    let applied = read(&rows).map_err(|err| error::map(DOING, err))?;
    check_applied(&applied, MIGRATIONS)
}

fn read(rows: &[SqliteRow]) -> Result<Vec<Applied>, sqlx::Error> {
    rows.iter().map(|row| Ok(Applied { version: row.try_get(0)?, oldest_build: row.try_get(1)? })).collect()
}
