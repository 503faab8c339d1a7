//! Measures the library against bare sqlx on the same work, on the same database, in the same run.
//!
//! `scripts/bench` starts a fit server and runs this; `docs/benchmarks.md` says how the figures are made.

use std::process::ExitCode;

use sqlstreams::{Postgres, Sqlite};

mod claim;
mod drain;
mod latency;
mod machine;
mod options;
mod payload;
mod produce;
mod report;
mod run;
mod together;
mod wal;
mod yardstick;

use options::{Databases, HELP, Options};
use report::Row;
use run::{Result, say};
use yardstick::{Folder, Server, Yardstick};

const SERVER_VARIABLE: &str = "SQLSTREAMS_BENCH_POSTGRES";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match &arguments[..] {
        [consume, database, url] if consume == latency::child::ARGUMENT => {
            latency::child::consume(database, url).await.map(|()| true)
        }
        _ => measure(arguments).await,
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            eprintln!("{err}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints; false when a figure could not be taken.
async fn measure(arguments: Vec<String>) -> Result<bool> {
    let Some(mut options) = Options::read(arguments.into_iter())? else {
        println!("{HELP}");
        return Ok(true);
    };
    let sample = payload::encoded_batch(1)?;
    if sample[0].len() != payload::BYTES {
        return Err(format!("a payload has {} bytes instead of {}", sample[0].len(), payload::BYTES).into());
    }
    let url = std::env::var(SERVER_VARIABLE).ok().filter(|url| !url.is_empty());
    if url.is_none() && options.databases != Databases::Sqlite {
        let advice = format!("set {SERVER_VARIABLE} to the URL of a server, or run scripts/bench");
        if options.databases == Databases::Postgres {
            return Err(format!("there is no PostgreSQL server to measure on - {advice}").into());
        }
        eprintln!("PostgreSQL is not measured - {advice}");
        options.databases = Databases::Sqlite;
    }
    for line in machine::describe(&options.folder) {
        println!("- {line}");
    }
    let mut complete = true;
    if let Some(url) = url.filter(|_| options.databases != Databases::Sqlite) {
        let server = Server::prepare(&url).await?;
        complete &= print::<Postgres>(&server, &options).await?;
        server.remove().await?;
    }
    if options.databases != Databases::Postgres {
        complete &= print::<Sqlite>(&Folder(options.folder.clone()), &options).await?;
    }
    Ok(complete)
}

/// Prints a database's table.
async fn print<Db: Yardstick>(place: &Db::Place, options: &Options) -> Result<bool> {
    for line in Db::describe(place).await? {
        println!("- {line}");
    }
    say(Db::NAME);
    let mut table = Table { rows: Vec::new(), complete: true };
    let mut sources = wal::Sources::default();
    table.throughput::<Db>(place, options, &mut sources).await;
    if options.wants("latency")
        && let Some(all) = table.taken("latency", latency::latency::<Db>(place, options).await)
    {
        table.rows.extend(report::latency_rows(&all));
    }
    table.rows.extend(wal::rows(&sources));
    if options.wants("claims")
        && !Db::PARTITIONS.is_empty()
        && let Some(all) = table.taken("claims", claim::partitions::<Db>(place, options).await)
    {
        table.rows.extend(report::partition_rows(&all));
    }
    if options.wants("held")
        && let Some(held) = table.taken("held", claim::held::<Db>(place, options).await)
    {
        table.rows.extend(report::held_rows(&held, options));
    }
    println!("\n{}", report::table(Db::NAME, &table.rows));
    Ok(table.complete)
}

struct Table {
    rows: Vec<Row>,
    complete: bool,
}

impl Table {
    /// A failed figure is a row of its own, and the others are taken all the same.
    fn taken<T>(&mut self, figure: &str, result: Result<T>) -> Option<T> {
        match result {
            Ok(taken) => Some(taken),
            Err(err) => {
                self.complete = false;
                self.rows.push(Row::failed(figure, &err));
                None
            }
        }
    }

    async fn throughput<Db: Yardstick>(&mut self, place: &Db::Place, options: &Options, sources: &mut wal::Sources) {
        if options.wants("batches") {
            sources.batches = self.taken("batches", produce::batches::<Db>(place, options).await);
            self.rate("batches of 250 by 4 callers, messages/s", sources.batches.as_ref(), "≥ 0.85");
        }
        if options.wants("singles") {
            sources.singles = self.taken("singles", produce::singles::<Db>(place, options, 64).await);
            self.rate("single produces by 64 callers, messages/s", sources.singles.as_ref(), "≥ 0.35");
            let many = self.taken("singles", produce::singles::<Db>(place, options, 256).await);
            self.rate("single produces by 256 callers, messages/s", many.as_ref(), "≥ 0.5");
        }
        if options.wants("drain") {
            sources.drain = self.taken("drain", drain::drain::<Db>(place, options).await);
            let figure = format!("drain of a backlog of {}, messages/s", options.backlog);
            self.rate(&figure, sources.drain.as_ref(), "≥ 0.8");
        }
        if options.wants("together") {
            sources.together = self.taken("together", together::together::<Db>(place, options).await);
            let figure = format!("produce and consume together, {} s, messages/s", options.together.as_secs_f64());
            self.rate(&figure, sources.together.as_ref(), "≥ 0.8");
        }
    }

    fn rate(&mut self, figure: &str, pairs: Option<&run::Pairs>, goal: &str) {
        if let Some(pairs) = pairs {
            self.rows.push(Row::rate(figure, pairs, goal));
        }
    }
}
