//! Migrations: numbered, printable, and each with the oldest build that still works with it.

use crate::error::{Error, Kind};

/// This build's version.
pub(crate) const BUILD: &str = env!("CARGO_PKG_VERSION");

/// One step of an installation's schema.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Its number, from 1.
    pub version: i32,
    /// What it does, in a word.
    pub name: &'static str,
    /// The oldest build that works with a database that has it; older ones are refused.
    pub oldest_build: &'static str,
    /// Its statements, `{schema}` unfilled.
    pub(crate) sql: &'static str,
}

/// A migration that the database has.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    pub(crate) version: i32,
    pub(crate) oldest_build: String,
}

/// Refuses a database that is too new for this build, or that lacks one of the `needed` migrations. A
/// database that is merely newer is welcome: rolling upgrades and rollbacks rest on it.
pub(crate) fn check_applied(applied: &[Applied], needed: &[Migration]) -> Result<(), Error> {
    for migration in applied {
        if parts(&migration.oldest_build) > parts(BUILD) {
            return Err(Error::new(
                Kind::Migration,
                "SQLS-0401",
                format!(
                    "the database has migration {}, which needs sqlstreams {} or later; this is {BUILD} - update this program",
                    migration.version, migration.oldest_build
                ),
            ));
        }
    }
    match needed.iter().find(|needed| !applied.iter().any(|a| a.version == needed.version)) {
        None => Ok(()),
        Some(missing) => Err(Error::new(
            Kind::Migration,
            "SQLS-0402",
            format!(
                "the database lacks migration {} ({}) of sqlstreams {BUILD} - run `client.migrate()` once",
                missing.version, missing.name
            ),
        )),
    }
}

/// A migration as a person runs it: what has to be there before it, its statements, and its place in the history.
pub(crate) fn script(before: &[&str], sql: &str, record: &str, migration: &Migration) -> String {
    let values = [migration.version.to_string(), quoted(migration.name), quoted(migration.oldest_build), quoted(BUILD)];
    let mut record = record.to_owned();
    for (number, value) in values.iter().enumerate() {
        record = record.replace(&format!("${}", number + 1), value);
    }
    let mut script = String::new();
    for statement in before.iter().chain([&sql, &record.as_str()]) {
        script.push_str(statement.trim_end().trim_end_matches(';'));
        script.push_str(";\n\n");
    }
    script
}

pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

pub(crate) fn missing_installation(place: &str) -> Error {
    Error::new(
        Kind::Migration,
        "SQLS-0403",
        format!("there is no sqlstreams installation in {place} - run `client.migrate()` once"),
    )
}

fn parts(version: &str) -> Vec<u64> {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    core.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Migration = Migration { version: 1, name: "installation", oldest_build: "0.1.0", sql: "" };

    fn applied(version: i32, oldest_build: &str) -> Applied {
        Applied { version, oldest_build: oldest_build.to_owned() }
    }

    #[test]
    fn a_newer_database_is_welcome_until_it_says_otherwise() {
        assert!(check_applied(&[applied(1, "0.1.0"), applied(2, "0.1.0")], &[ONE]).is_ok());
        let refused = check_applied(&[applied(1, "0.1.0"), applied(2, "99.0.0")], &[ONE]);
        assert!(refused.is_err_and(|err| err.code() == "SQLS-0401"));
    }

    #[test]
    fn a_missing_migration_is_named() {
        assert!(check_applied(&[], &[ONE]).is_err_and(|err| err.code() == "SQLS-0402"));
    }

    #[test]
    fn a_script_stores_its_migration_in_the_history() {
        let text = script(&["create a\n"], "create b;\n", "insert ($1, $2, $3, $4)\n", &ONE);
        assert_eq!(text, format!("create a;\n\ncreate b;\n\ninsert (1, 'installation', '0.1.0', '{BUILD}');\n\n"));
    }

    #[test]
    fn versions_compare_by_number_and_not_by_text() {
        assert!(parts("0.10.0") > parts("0.9.9"));
    }
}
