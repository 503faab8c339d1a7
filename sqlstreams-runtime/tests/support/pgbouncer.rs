//! Throwaway connection poolers.

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;

use super::cluster::{as_server_user, free_port, new_folder};
use super::database::server;

const NO_PROGRAM: &str = "a test needs PgBouncer, and none was found - install your system's package (Debian: \
    apt-get install pgbouncer), or run scripts/test, which installs it";

/// How long a pooler takes at most to begin.
const LIMIT: Duration = Duration::from_secs(20);

/// A PgBouncer with few servers before a PostgreSQL server, gone when it is dropped or the test's process ends.
#[derive(Debug)]
pub struct Pooler {
    folder: PathBuf,
    port: u16,
    watchdog: Child,
}

impl Pooler {
    /// Before the server of `url`; `settings` are lines of pgbouncer.ini, such as `pool_mode = transaction`.
    pub fn start(url: &str, settings: &str) -> Self {
        let options = PgConnectOptions::from_str(url).expect("a URL of Postgres");
        let (folder, port) = (new_folder(), free_port());
        let text = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}/users\nlogfile = {}/log\n\
             max_client_conn = 500\ndefault_pool_size = 4\nserver_login_retry = 0\n{settings}\n",
            options.get_host(),
            options.get_port(),
            folder.display(),
            folder.display(),
        );
        fs::write(folder.join("ini"), text).expect("the folder can be written");
        fs::write(folder.join("users"), format!("\"{}\" \"\"\n", options.get_username())).expect("it can be written");
        // As a server's: a process that outlives this one for a moment.
        let watchdog = as_server_user("sh")
            .args([
                "-c",
                "\"$1\" -q \"$2/ini\" & pooler=$!; read line; kill $pooler; wait $pooler; rm -rf \"$2\"",
                "sh",
            ])
            .arg(program())
            .arg(&folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh runs");
        let pooler = Self { folder, port, watchdog };
        let deadline = Instant::now() + LIMIT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "the pooler did not start: {}", pooler.log());
            std::thread::yield_now();
        }
        pooler
    }

    /// The URL of the same database through the pooler.
    pub fn url(&self, url: &str) -> String {
        let options = PgConnectOptions::from_str(url).expect("a URL of Postgres");
        let database = options.get_database().expect("the URL names a database");
        format!("postgres://{}@127.0.0.1:{}/{database}", options.get_username(), self.port)
    }

    /// What the pooler wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A pooler by transaction before the shared server, for all tests of a process.
pub fn shared() -> &'static Pooler {
    static SHARED: OnceLock<Pooler> = OnceLock::new();
    SHARED.get_or_init(|| Pooler::start(server(), "pool_mode = transaction"))
}

fn program() -> PathBuf {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    folders.push(PathBuf::from("/usr/sbin"));
    folders.into_iter().map(|folder| folder.join("pgbouncer")).find(|path| path.is_file()).expect(NO_PROGRAM)
}
