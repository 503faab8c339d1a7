//! A consumer in a process of its own: this program again.

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use sqlstreams::sqlx::Database as _;
use sqlstreams::{Client, Postgres, Sqlite};

use super::{Samples, measuring};
use crate::run::Result;
use crate::yardstick::Yardstick;

/// The argument that makes this program a consumer; the database's name and its URL follow.
pub const ARGUMENT: &str = "--consume";
/// How long the last messages may take.
const GRACE: Duration = Duration::from_secs(1);

/// The running child; killed when dropped.
pub struct Child {
    process: std::process::Child,
}

impl Child {
    /// Starts a consumer of the installation at `url`.
    pub fn start<Db: Yardstick>(url: &str) -> Result<Self> {
        let process = Command::new(std::env::current_exe()?)
            .args([ARGUMENT, Db::NAME, url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self { process })
    }

    /// Ends the consumer and returns what it measured.
    pub async fn finish(mut self) -> Result<Samples> {
        tokio::time::sleep(GRACE).await;
        // The end of its input is the sign to stop.
        drop(self.process.stdin.take());
        let output = self.process.stdout.take().ok_or("the child has no output")?;
        tokio::task::spawn_blocking(move || read(output)).await?
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(output: ChildStdout) -> Result<Samples> {
    let samples = Samples::default();
    for line in BufReader::new(output).lines() {
        let line = line?;
        let (made, took) = line.split_once(' ').ok_or("the child says two numbers a line")?;
        samples.push(made.parse()?, took.parse()?);
    }
    Ok(samples)
}

/// The child's side: consumes until its input ends, then prints what it measured.
pub async fn consume(database: &str, url: &str) -> Result<()> {
    match database {
        Postgres::NAME => consume_on::<Postgres>(url).await,
        Sqlite::NAME => consume_on::<Sqlite>(url).await,
        other => Err(format!("no database is named {other}").into()),
    }
}

async fn consume_on<Db: Yardstick>(url: &str) -> Result<()> {
    let client = Client::<Db>::connect(url).await?;
    let samples = Samples::default();
    let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let shutdown = async {
        let _ = end.await;
    };
    measuring(&client, &samples).run_until(shutdown).await?;
    client.close().await;
    for (made, took) in samples.all() {
        println!("{made} {took}");
    }
    Ok(())
}
