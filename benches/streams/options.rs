//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::run::Result;

/// What can be asked for by name.
pub const FIGURES: [&str; 7] = ["batches", "singles", "drain", "together", "latency", "claims", "held"];

pub const HELP: &str = "\
Measures this build against bare sqlx and prints a table a database.

  --database NAME       postgres, sqlite or both (both, or sqlite without a server)
  --only A,B            some of the figures: batches, singles, drain, together, latency, claims, held (all)
  --pairs N             pairs of runs a figure (5)
  --seconds S           seconds of each run that produces (6)
  --together S          seconds of each run that produces and consumes (20)
  --latency S           seconds of each run at 200 messages a second (10)
  --backlog N           messages of the backlog (200000)
  --claims N            claims in each median of claims (2000)
  --held-minutes M      how long a snapshot is held (5)
  --folder PATH         where SQLite's files are made (the system's folder for temporary files)

The PostgreSQL server is the one whose URL SQLSTREAMS_BENCH_POSTGRES holds; a database of the benchmark's own
is made on it and dropped at the end. scripts/bench starts one with settings that are fit for it.";

/// Which databases to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Databases {
    Postgres,
    Sqlite,
    Both,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub databases: Databases,
    only: Vec<String>,
    pub pairs: usize,
    pub seconds: Duration,
    pub together: Duration,
    pub latency: Duration,
    pub backlog: u64,
    pub claims: usize,
    pub held: Duration,
    pub folder: PathBuf,
}

impl Options {
    /// Reads the arguments; `None` when help was asked for.
    pub fn read(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let mut options = Self {
            databases: Databases::Both,
            only: Vec::new(),
            pairs: 5,
            seconds: Duration::from_secs(6),
            together: Duration::from_secs(20),
            latency: Duration::from_secs(10),
            backlog: 200_000,
            claims: 2_000,
            held: Duration::from_secs(5 * 60),
            folder: std::env::temp_dir(),
        };
        while let Some(name) = arguments.next() {
            match &*name {
                // Cargo says it to every benchmark.
                "--bench" => continue,
                "--help" => return Ok(None),
                _ => {}
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value - see --help"))?;
            options.set(&name, &value).map_err(|err| format!("{name} {value}: {err} - see --help"))?;
        }
        Ok(Some(options))
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "--database" => {
                self.databases = match value {
                    "postgres" => Databases::Postgres,
                    "sqlite" => Databases::Sqlite,
                    "both" => Databases::Both,
                    _ => return Err("not a database".into()),
                };
            }
            "--only" => {
                self.only = value.split(',').map(str::to_owned).collect();
                if let Some(unknown) = self.only.iter().find(|name| !FIGURES.contains(&&***name)) {
                    return Err(format!("no figure is named {unknown}").into());
                }
            }
            "--pairs" => self.pairs = value.parse::<usize>()?.max(1),
            "--seconds" => self.seconds = Duration::try_from_secs_f64(value.parse()?)?,
            "--together" => self.together = Duration::try_from_secs_f64(value.parse()?)?,
            "--latency" => self.latency = Duration::try_from_secs_f64(value.parse()?)?,
            "--backlog" => self.backlog = value.parse()?,
            "--claims" => self.claims = value.parse::<usize>()?.max(1),
            "--held-minutes" => self.held = Duration::try_from_secs_f64(value.parse::<f64>()? * 60.0)?,
            "--folder" => self.folder = value.into(),
            _ => return Err("not an option".into()),
        }
        Ok(())
    }

    /// Whether a figure is to be measured.
    pub fn wants(&self, figure: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == figure)
    }
}
