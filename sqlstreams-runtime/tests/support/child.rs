//! A test's second process: the same test program again, running one ignored test.
//!
//! ```ignore
//! #[tokio::test]
//! async fn a_killed_consumer_loses_nothing() {
//!     let mut child = ChildProcess::start(module_path!(), "consumer_process", &[("URL", url)]);
//!     child.expect("claimed", SECONDS).await;
//!     child.kill();
//! }
//!
//! #[tokio::test]
//! #[ignore = "the second process of a_killed_consumer_loses_nothing"]
//! async fn consumer_process() {
//!     let Some(parent) = Parent::connect() else { return };
//!     parent.say("claimed");
//!     parent.hear().await;
//! }
//! ```

use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

const CHILD_VARIABLE: &str = "SQLSTREAMS_TEST_CHILD";
/// Begins what a child tells, so that the test framework's own lines and logs are not mistaken for it.
const MARK: &str = "sqlstreams-child: ";

/// A running second process; killed when dropped.
#[derive(Debug)]
pub struct ChildProcess {
    test: String,
    process: Child,
    said: UnboundedReceiver<String>,
    printed: Arc<Mutex<String>>,
}

impl ChildProcess {
    /// Starts the ignored test `test` of the module `module` (say `module_path!()`) in a process of its
    /// own, with `variables` added to the environment.
    pub fn start(module: &str, test: &str, variables: &[(&str, &str)]) -> Self {
        // The framework leaves out the program's name, with which a module path begins.
        let test = match module.split_once("::") {
            Some((_program, modules)) => format!("{modules}::{test}"),
            None => test.to_owned(),
        };
        let program = std::env::current_exe().expect("a test knows its own program");
        let mut process = Command::new(program)
            .args([&test, "--exact", "--ignored", "--nocapture"])
            .env(CHILD_VARIABLE, "1")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a test can run its own program");
        let printed = Arc::new(Mutex::new(String::new()));
        let (sender, said) = unbounded_channel();
        read_lines(process.stdout.take(), printed.clone(), Some(sender));
        read_lines(process.stderr.take(), printed.clone(), None);
        Self { test, process, said, printed }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next line that the child says; fails the test when none comes within `limit`.
    pub async fn line(&mut self, limit: Duration) -> String {
        match timeout(limit, self.said.recv()).await {
            Ok(Some(line)) => line,
            Ok(None) => panic!("{} ended without a line; it printed:\n{}", self.test, self.printed()),
            Err(_) => panic!("{} said nothing in {limit:?}; it printed:\n{}", self.test, self.printed()),
        }
    }

    /// Waits for the line that begins with `start`, skipping others, and returns what follows in it.
    pub async fn expect(&mut self, start: &str, limit: Duration) -> String {
        let deadline = Instant::now() + limit;
        loop {
            let line = self.line(deadline.saturating_duration_since(Instant::now())).await;
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim_start().to_owned();
            }
        }
    }

    /// Whether the child stays silent for that long; only for showing that a frozen one is.
    pub async fn said_nothing(&mut self, time: Duration) -> bool {
        timeout(time, self.said.recv()).await.is_err()
    }

    /// Everything that the child says from now on, for a test that also does something to it; the other ways to
    /// hear it end here.
    pub fn take_lines(&mut self) -> UnboundedReceiver<String> {
        std::mem::replace(&mut self.said, unbounded_channel().1)
    }

    /// Sends the child a line.
    pub fn tell(&mut self, line: impl Display) {
        let stdin = self.process.stdin.as_mut().expect("the child's input is open");
        writeln!(stdin, "{line}").expect("the child reads its input");
    }

    /// Kills the process as a crash would (SIGKILL) and waits until it's gone.
    pub fn kill(&mut self) {
        self.process.kill().expect("an own child can be killed");
        self.process.wait().expect("an own child can be waited for");
    }

    /// Stops the process in the middle of whatever it does (SIGSTOP), until [`thaw`](Self::thaw).
    pub fn freeze(&self) {
        signal(self.id(), "STOP");
        while !is_stopped(self.id()) {
            std::thread::yield_now();
        }
    }

    /// Lets a frozen process go on (SIGCONT).
    pub fn thaw(&self) {
        signal(self.id(), "CONT");
    }

    /// Asks the process to end (SIGTERM).
    pub fn terminate(&self) {
        signal(self.id(), "TERM");
    }

    /// Waits until the child ends by itself; fails the test when it doesn't within `limit`.
    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let closed = async { while self.said.recv().await.is_some() {} };
        if timeout(limit, closed).await.is_err() {
            panic!("{} did not end in {limit:?}; it printed:\n{}", self.test, self.printed());
        }
        self.process.wait().expect("an own child can be waited for")
    }

    /// Whether the child is gone.
    pub fn has_ended(&mut self) -> bool {
        self.process.try_wait().expect("an own child can be waited for").is_some()
    }

    /// What the child printed so far, with its log.
    pub fn printed(&self) -> String {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a signal, by its name without SIG, to any process.
pub fn signal(process: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", "kill -s \"$1\" \"$2\"", "sh", name, &process.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "signal {name} did not reach process {process}");
}

/// Whether every thread of the process is stopped; true where the system doesn't show it.
fn is_stopped(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_name, rest)| rest.starts_with('T'))
    })
}

fn read_lines<R: Read + Send + 'static>(
    pipe: Option<R>,
    printed: Arc<Mutex<String>>,
    said: Option<UnboundedSender<String>>,
) {
    let pipe = pipe.expect("the pipe was asked for");
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            match (line.strip_prefix(MARK), &said) {
                (Some(line), Some(said)) => drop(said.send(line.to_owned())),
                _ => *printed.lock().unwrap_or_else(PoisonError::into_inner) += &(line + "\n"),
            }
        }
    });
}

/// The child's side: the process that started it.
#[derive(Debug)]
pub struct Parent {
    told: UnboundedReceiver<String>,
}

impl Parent {
    /// The parent, or nothing when the test was started by hand and should return. From here on the
    /// process ends when its parent does.
    pub fn connect() -> Option<Self> {
        std::env::var_os(CHILD_VARIABLE)?;
        let (sender, told) = unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
            std::process::exit(1);
        });
        Some(Self { told })
    }

    /// Says a line to the parent.
    pub fn say(&self, line: impl Display) {
        say(line);
    }

    /// The next line from the parent.
    pub async fn hear(&mut self) -> String {
        self.told.recv().await.expect("the process ends when its input does")
    }
}

/// Says a line to the parent, from anywhere in the child, such as a handler.
pub fn say(line: impl Display) {
    // The framework may have left an unfinished line before it.
    println!("\n{MARK}{line}");
}
