//! Throwaway PostgreSQL servers, for tests that stop or crash one.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{LazyLock, Mutex};

/// Names the folder of the server programs (initdb, pg_ctl, postgres) to use.
pub const BIN_VARIABLE: &str = "SQLSTREAMS_TEST_POSTGRES_BIN";

const NO_PROGRAMS: &str = "a test needs PostgreSQL's server programs, and none were found - install your \
    system's server package (Debian: apt-get install postgresql), name their folder in \
    SQLSTREAMS_TEST_POSTGRES_BIN, or run scripts/test, which installs them";

/// Lines for a server's postgresql.conf.
#[derive(Clone, Debug, Default)]
pub struct Options {
    settings: Vec<(String, String)>,
}

impl Options {
    /// Adds a setting, written as in postgresql.conf: `with("wal_writer_delay", "10s")`.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// How a server goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Open transactions are aborted and everything is written.
    Fast,
    /// A crash: what was not yet in the WAL on disk is lost, and the next start recovers.
    Immediate,
}

/// A server of the test's own, with every protection on (`fsync`), stopped and removed when dropped, and
/// also when the test's process is killed.
#[derive(Debug)]
pub struct Cluster {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
    watchdog: Child,
}

impl Cluster {
    /// Starts a server; superuser `postgres`, no password, on 127.0.0.1.
    pub fn start(options: Options) -> Self {
        let bin = bin_dir();
        let template = template(&bin);
        let folder = new_folder();
        let watchdog = watch(&bin, &folder);
        let mut cluster = Self { bin, folder, port: 0, watchdog };
        copy(&template, &cluster.data());
        cluster.configure(&options);
        for attempt in 1.. {
            cluster.port = free_port();
            match cluster.try_start() {
                Ok(()) => break,
                Err(report) if attempt == 5 || !report.contains("Address already in use") => {
                    panic!("the server did not start: {report}")
                }
                Err(_) => {}
            }
        }
        cluster
    }

    /// Stops the server; its data stay for [`start_again`](Self::start_again).
    pub fn stop(&self, mode: Mode) {
        let mode = match mode {
            Mode::Fast => "fast",
            Mode::Immediate => "immediate",
        };
        let output = output(self.pg_ctl().args(["-m", mode, "-w", "-s", "stop"]));
        assert!(output.status.success(), "the server did not stop: {}", text(&output));
    }

    /// Starts a stopped server at the same address, recovering what a crash left.
    pub fn start_again(&self) {
        if let Err(report) = self.try_start() {
            panic!("the server did not start again: {report}");
        }
    }

    /// Starts a server that follows this one, asynchronously.
    pub fn replica(&self) -> Self {
        let folder = new_folder();
        let watchdog = watch(&self.bin, &folder);
        let mut replica = Self { bin: self.bin.clone(), folder, port: free_port(), watchdog };
        let mut copying = as_server_user(self.bin.join("pg_basebackup"));
        copying.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &self.port.to_string()]);
        let copied = output(copying.args(["-X", "stream", "-c", "fast", "-R", "-D"]).arg(replica.data()));
        assert!(copied.status.success(), "pg_basebackup did not succeed: {}", text(&copied));
        replica.configure(&Options::default());
        while let Err(report) = replica.try_start() {
            assert!(report.contains("Address already in use"), "the replica did not start: {report}");
            replica.port = free_port();
        }
        replica
    }

    /// Makes a replica a server of its own.
    pub fn promote(&self) {
        let output = output(self.pg_ctl().args(["-w", "-s", "promote"]));
        assert!(output.status.success(), "the replica was not promoted: {}", text(&output));
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of one of its databases; `postgres` always exists.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The process id of the running postmaster.
    pub fn pid(&self) -> u32 {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).expect("the server is running");
        file.lines().next().and_then(|line| line.parse().ok()).expect("postmaster.pid begins with the id")
    }

    /// What the server wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// The folder of the programs that this server runs from.
    pub fn bin_dir(&self) -> &Path {
        &self.bin
    }

    /// The folder that holds the server; it's gone when the cluster is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn configure(&self, options: &Options) {
        let mut lines = format!(
            "listen_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n\
             max_connections = 200\nmax_prepared_transactions = 20\n",
            self.folder.display()
        );
        for (name, value) in &options.settings {
            lines.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(self.data().join("postgresql.conf"))
            .expect("a template holds postgresql.conf");
        file.write_all(lines.as_bytes()).expect("the settings can be written");
    }

    fn try_start(&self) -> Result<(), String> {
        let port = format!("-p {}", self.port);
        let log = self.log_file();
        let output = output(self.pg_ctl().arg("-l").arg(log).args(["-o", &port, "-w", "-s", "start"]));
        if output.status.success() { Ok(()) } else { Err(text(&output) + &self.log()) }
    }

    fn pg_ctl(&self) -> Command {
        let mut command = as_server_user(self.bin.join("pg_ctl"));
        command.arg("-D").arg(self.data());
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The folder of the server programs: what the variable names, else the installed ones.
pub fn bin_dir() -> PathBuf {
    let named = std::env::var_os(BIN_VARIABLE).map(PathBuf::from);
    if let Some(folder) = &named {
        assert!(
            has_programs(folder),
            "{BIN_VARIABLE} names {}, which holds no initdb, pg_ctl and postgres",
            folder.display()
        );
    }
    named.or_else(installed_bin_dir).expect(NO_PROGRAMS)
}

/// The newest server programs that are installed.
pub fn installed_bin_dir() -> Option<PathBuf> {
    let told = Command::new("pg_config").arg("--bindir").output().ok();
    let told = told.and_then(|output| String::from_utf8(output.stdout).ok());
    let told = told.map(|line| PathBuf::from(line.trim()));
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    versions.sort_by_key(|folder| std::cmp::Reverse(major_version(folder)));
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    told.into_iter().chain(versions).chain(on_path).find(|folder| has_programs(folder))
}

fn has_programs(folder: &Path) -> bool {
    ["initdb", "pg_ctl", "postgres"].iter().all(|program| folder.join(program).is_file())
}

fn major_version(bin: &Path) -> u32 {
    let version = bin.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    version.and_then(|name| name.parse().ok()).unwrap_or(0)
}

/// The server refuses to run as root, so there a system user runs it: its user and group id.
static SERVER_USER: LazyLock<Option<(u32, u32)>> = LazyLock::new(|| {
    let id = |arguments: &[&str]| -> Option<u32> {
        let output = Command::new("id").args(arguments).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    if id(&["-u"]) != Some(0) {
        return None;
    }
    let of = |user| Some((id(&["-u", user])?, id(&["-g", user])?));
    Some(of("postgres").or_else(|| of("nobody")).expect("root can run the server as postgres or nobody"))
});

pub(super) fn as_server_user(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").stdin(Stdio::null());
    if let Some((user, group)) = *SERVER_USER {
        command.uid(user).gid(group);
    }
    command
}

/// A process that outlives this one for a moment: when the pipe that it reads from is closed, by us or by
/// our death, it stops the server and removes the folder. Its own process group keeps Ctrl-C away from it.
fn watch(bin: &Path, folder: &Path) -> Child {
    as_server_user("sh")
        .args(["-c", "read line; \"$1\" -D \"$2/data\" -m immediate -w -s stop; rm -rf \"$2\"", "sh"])
        .arg(bin.join("pg_ctl"))
        .arg(folder)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh runs")
}

/// A fresh data folder, made once for each version and kept beside the build's output, since copying one
/// is much quicker than initdb.
fn template(bin: &Path) -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let version = output(Command::new(bin.join("postgres")).arg("--version"));
    let user = if SERVER_USER.is_some() { "root" } else { "user" };
    let name = format!("{}-{user}", String::from_utf8_lossy(&version.stdout).trim());
    let name = name.replace(|letter: char| !letter.is_alphanumeric() && letter != '.', "-");
    let template = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if template.is_dir() {
        return template;
    }
    let folder = new_folder();
    let data = folder.join("data");
    let made = output(as_server_user(bin.join("initdb")).arg("-D").arg(&data).args([
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-locale",
        "--no-sync",
    ]));
    assert!(made.status.success(), "initdb did not succeed: {}", text(&made));
    let part = template.with_extension(unique());
    copy(&data, &part);
    let _ = fs::remove_dir_all(&folder);
    // Another process may have been quicker; its template is as good.
    if fs::rename(&part, &template).is_err() {
        let _ = fs::remove_dir_all(&part);
    }
    template
}

/// A folder that the server's user owns.
pub(super) fn new_folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sqlstreams-{}", unique()));
    fs::create_dir(&folder).expect("the temporary folder can be written");
    if let Some((user, group)) = *SERVER_USER {
        chown(&folder, Some(user), Some(group)).expect("root can give a folder away");
    }
    folder
}

fn copy(from: &Path, to: &Path) {
    let copied = output(Command::new("cp").arg("-Rp").arg(from).arg(to));
    assert!(copied.status.success(), "cp did not succeed: {}", text(&copied));
}

/// A port below the range from which the system gives local ports to clients: a client that reconnects
/// while the server is down would else be given the server's own port.
pub(super) fn free_port() -> u16 {
    let mut ports = std::iter::repeat_with(|| 15_000 + (uuid::Uuid::new_v4().as_u128() % 17_000) as u16);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("the ports never end")
}

fn unique() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..12].to_owned()
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|err| panic!("{command:?} did not run: {err}"))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
