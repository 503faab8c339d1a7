//! Databases of a test's own: on the shared PostgreSQL server, and as SQLite files.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::cluster::{self, Cluster, Options};

/// Names a running server that the tests may create databases on.
pub const SERVER_VARIABLE: &str = "SQLSTREAMS_TEST_POSTGRES";

const NO_SERVER: &str = "the tests need PostgreSQL - set SQLSTREAMS_TEST_POSTGRES to the URL of a server, \
    install your system's server package (Debian: apt-get install postgresql), or run scripts/test, which \
    installs it";

/// The URL of the server that all tests of a process share: what the variable names, else one that is
/// started from the installed programs and goes down with the process.
pub fn server() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    URL.get_or_init(|| match std::env::var(SERVER_VARIABLE) {
        Ok(url) if !url.is_empty() => url,
        _ => {
            assert!(
                cluster::installed_bin_dir().is_some() || std::env::var_os(cluster::BIN_VARIABLE).is_some(),
                "{NO_SERVER}"
            );
            // No test crashes this server, so it need not wait for the disk.
            let options = Options::default().with("fsync", "off").with("full_page_writes", "off");
            SHARED.get_or_init(|| Cluster::start(options)).url("postgres")
        }
    })
}

/// An empty database, dropped at the end of the test together with the connections to it.
#[derive(Debug)]
pub struct Database {
    server: String,
    name: String,
    url: String,
}

impl Database {
    /// The database's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Creates an empty database on the shared server.
pub async fn fresh_database() -> Database {
    fresh_database_on(server()).await
}

/// Creates an empty database on the server that a URL leads to.
pub async fn fresh_database_on(server: &str) -> Database {
    let name = format!("sqlstreams_test_{}", uuid::Uuid::new_v4().simple());
    // template0, since nobody can be connected to it; a connection to template1 would refuse the copy.
    let statement = format!("create database {name} template template0");
    if let Err(err) = execute(server, &statement).await {
        panic!("no database could be created on the server: {err}");
    }
    Database { server: server.to_owned(), url: with_database(server, &name), name }
}

impl Drop for Database {
    fn drop(&mut self) {
        let statement = format!("drop database if exists {} with (force)", self.name);
        let server = self.server.clone();
        // A thread, since a runtime that is dropping this value may not block on another one. A server
        // that is down, as after a crash test, took the database with it or will be removed whole.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(execute(&server, &statement)))
        });
        let _ = dropping.join();
    }
}

async fn execute(server: &str, statement: &str) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect(server).await?;
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
    connection.close().await
}

/// The same URL with another database: `postgres://host/this?options`.
fn with_database(url: &str, database: &str) -> String {
    let (address, options) = url.split_once('?').map_or((url, None), |(left, right)| (left, Some(right)));
    let host = address.find("://").map_or(0, |at| at + 3);
    let end = address[host..].find('/').map_or(address.len(), |at| host + at);
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    format!("{}/{database}{options}", &address[..end])
}

/// A place for a SQLite database, removed at the end of the test with what lies beside the file.
#[derive(Debug)]
pub struct SqliteFile {
    folder: tempfile::TempDir,
}

impl SqliteFile {
    /// The file's path; nothing is there yet.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("test.db")
    }

    /// The file as a URL that also creates it.
    pub fn url(&self) -> String {
        format!("sqlite://{}?mode=rwc", self.path().display())
    }

    /// The folder around it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// A fresh place for a SQLite database.
pub fn sqlite_file() -> SqliteFile {
    let folder = tempfile::Builder::new().prefix("sqlstreams-").tempdir();
    SqliteFile { folder: folder.expect("the temporary folder can be written") }
}
