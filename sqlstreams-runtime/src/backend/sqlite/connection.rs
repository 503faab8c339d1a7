//! The connections to one database file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use sqlx::query::Query;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Either, Execute, Executor, Row, SqlStr, Sqlite};
use tokio::sync::{Mutex, MutexGuard, Semaphore};

use super::crowd::{Crowd, Patience, leave_gap, nap};
use super::error;
use super::statements::SharedStatements;
use crate::error::Error;

const READERS: usize = 4;
/// Statements are cached a connection: some twenty a stream.
const STATEMENT_CACHE: usize = 1_000;
/// Rows on their way from a connection's thread.
const ROW_BUFFER: usize = 1_000;
/// Above this size the WAL file is emptied by force, looked at so often. SQLite does it by itself, but never
/// finds the moment while several processes write without a pause.
const LONGEST_LOG: u64 = 64 * 1024 * 1024;
const LOG_LOOKS: Duration = Duration::from_secs(1);
const LOG_TRIES: u32 = 50;

/// Whether a commit must be on the disk before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// On the disk when the call returns.
    Durable,
    /// Survives the process; a crash of the machine may take the newest of such commits back.
    Relaxed,
}

/// The engine's connections. A connection is taken out of its place while it is used: a dropped future
/// drops it, whatever transaction it was in, and the next user opens another one.
pub(super) struct Connections {
    options: SqliteConnectOptions,
    texts: Texts,
    readers: StdMutex<Vec<SqliteConnection>>,
    reader_turns: Semaphore,
    /// SQLite has one writer at a time: tasks of this process queue here, in order.
    writers: Mutex<Writers>,
    crowd: Crowd,
    closed: AtomicBool,
}

struct Texts {
    begin: SqlStr,
    commit: SqlStr,
    journal_mode: SqlStr,
    text_encoding: SqlStr,
    log_truncate: SqlStr,
}

#[derive(Default)]
struct Writers {
    durable: Option<SqliteConnection>,
    relaxed: Option<SqliteConnection>,
    last_commit: Option<Instant>,
    last_log_look: Option<Instant>,
}

impl Writers {
    fn place(&mut self, durability: Durability) -> &mut Option<SqliteConnection> {
        match durability {
            Durability::Durable => &mut self.durable,
            Durability::Relaxed => &mut self.relaxed,
        }
    }
}

/// What a statement answered.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) rows: Vec<SqliteRow>,
    /// Rows that the last statement changed.
    pub(super) changes: u64,
    /// The id of the row that was inserted last.
    pub(super) last_id: i64,
}

impl Connections {
    pub(super) fn new(options: SqliteConnectOptions, shared: &SharedStatements) -> Self {
        let options = options
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::ZERO)
            .shared_cache(false)
            .foreign_keys(true)
            .statement_cache_capacity(STATEMENT_CACHE)
            .row_buffer_size(ROW_BUFFER);
        Self {
            options,
            texts: Texts {
                begin: shared.transaction_begin.clone(),
                commit: shared.transaction_commit.clone(),
                journal_mode: shared.journal_mode.clone(),
                text_encoding: shared.text_encoding.clone(),
                log_truncate: shared.log_truncate.clone(),
            },
            readers: StdMutex::default(),
            reader_turns: Semaphore::new(READERS),
            writers: Mutex::default(),
            crowd: Crowd::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Runs a statement that only reads.
    pub(super) async fn read(
        &self,
        doing: &str,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, Error> {
        let call = Call::of(doing, query)?;
        let _turn = self.reader_turns.acquire().await.map_err(|_| error::closed(doing))?;
        let patience = Patience::new();
        loop {
            let free = self.free_readers().pop();
            let mut connection = match free {
                Some(connection) => connection,
                None => self.open_reader(doing).await?,
            };
            let result = run(&mut connection, &call).await;
            let usable = result.as_ref().map_or_else(error::is_busy, |_| true);
            if usable && !self.is_closed() {
                self.free_readers().push(connection);
            }
            match result {
                Ok(answer) => return Ok(answer.rows),
                Err(err) if error::is_busy(&err) => patience.wait(doing).await?,
                Err(err) => return Err(error::map(doing, err)),
            }
        }
    }

    /// Runs a statement, or a text of several from begin to commit, that writes. While other processes hold
    /// the lock it is tried again and again; what failed so changed nothing.
    pub(super) async fn write(
        &self,
        durability: Durability,
        doing: &str,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Answer, Error> {
        let call = Call::of(doing, query)?;
        let mut writers = self.turn(doing).await?;
        let patience = Patience::new();
        loop {
            let mut connection = self.writer(&mut writers, durability, doing).await.map_err(Error::unsent)?;
            match run(&mut connection, &call).await {
                Ok(answer) => {
                    *writers.place(durability) = Some(connection);
                    writers.last_commit = Some(Instant::now());
                    if self.crowd.is_near() {
                        self.keep_log_short(&mut writers, durability).await;
                    }
                    return Ok(answer);
                }
                Err(err) if error::is_busy(&err) => {
                    *writers.place(durability) = Some(connection);
                    self.crowd.meet();
                    patience.wait(doing).await?;
                }
                Err(err) => return Err(error::map(doing, err)),
            }
        }
    }

    /// Begins a durable transaction whose statements depend on each other's answers. For registrations:
    /// the lock is held while this process's tasks take turns.
    pub(super) async fn begin(&self, doing: &'static str) -> Result<Transaction<'_>, Error> {
        let mut writers = self.turn(doing).await?;
        let patience = Patience::new();
        loop {
            let mut connection = self.writer(&mut writers, Durability::Durable, doing).await.map_err(Error::unsent)?;
            match sqlx::query(self.texts.begin.clone()).execute(&mut connection).await {
                Ok(_) => return Ok(Transaction { writers, connection, commit: self.texts.commit.clone(), doing }),
                Err(err) if error::is_busy(&err) => {
                    writers.durable = Some(connection);
                    self.crowd.meet();
                    patience.wait(doing).await?;
                }
                Err(err) => return Err(error::map(doing, err)),
            }
        }
    }

    /// A connection that only reads, for a caller that keeps it.
    pub(super) async fn open_reader(&self, doing: &str) -> Result<SqliteConnection, Error> {
        self.open(self.options.clone().pragma("query_only", "on"), doing).await
    }

    /// Refuses new calls, waits for the writer, and closes the connections; a reader at work closes its own.
    pub(super) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.reader_turns.close();
        let mut open = std::mem::take(&mut *self.free_readers());
        let mut writers = self.writers.lock().await;
        open.extend([writers.durable.take(), writers.relaxed.take()].into_iter().flatten());
        for connection in open {
            if let Err(err) = connection.close().await {
                tracing::debug!(error = %err, "a connection to the database file did not close cleanly");
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn free_readers(&self) -> std::sync::MutexGuard<'_, Vec<SqliteConnection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This task's turn among the writers of its process.
    async fn turn(&self, doing: &str) -> Result<MutexGuard<'_, Writers>, Error> {
        let writers = self.writers.lock().await;
        if self.is_closed() {
            return Err(error::closed(doing));
        }
        if self.crowd.is_near() {
            leave_gap(writers.last_commit).await;
        }
        Ok(writers)
    }

    async fn writer(
        &self,
        writers: &mut Writers,
        durability: Durability,
        doing: &str,
    ) -> Result<SqliteConnection, Error> {
        if let Some(connection) = writers.place(durability).take() {
            return Ok(connection);
        }
        let synchronous = match durability {
            Durability::Durable => SqliteSynchronous::Full,
            Durability::Relaxed => SqliteSynchronous::Normal,
        };
        let mut connection = self.open(self.options.clone().synchronous(synchronous), doing).await?;
        let mode = pragma(&mut connection, &self.texts.journal_mode).await.map_err(|err| error::map(doing, err))?;
        if mode != "wal" {
            return Err(error::not_wal(&mode));
        }
        // Payloads are joined and cut apart as bytes.
        let encoding =
            pragma(&mut connection, &self.texts.text_encoding).await.map_err(|err| error::map(doing, err))?;
        if encoding != "UTF-8" {
            return Err(error::not_utf8(&encoding));
        }
        Ok(connection)
    }

    /// Empties the WAL file when it has grown too long. Failing is no harm: the next one tries again.
    async fn keep_log_short(&self, writers: &mut Writers, durability: Durability) {
        if writers.last_log_look.is_some_and(|look| look.elapsed() < LOG_LOOKS) {
            return;
        }
        writers.last_log_look = Some(Instant::now());
        let mut log = self.options.get_filename().as_os_str().to_owned();
        log.push("-wal");
        if std::fs::metadata(log).map_or(0, |log| log.len()) < LONGEST_LOG {
            return;
        }
        for _ in 0..LOG_TRIES {
            let Some(mut connection) = writers.place(durability).take() else { return };
            let row = sqlx::query(self.texts.log_truncate.clone()).fetch_one(&mut connection).await;
            *writers.place(durability) = Some(connection);
            if row.and_then(|row| row.try_get::<bool, _>(0)).is_ok_and(|blocked| !blocked) {
                return;
            }
            nap().await;
        }
    }

    async fn open(&self, options: SqliteConnectOptions, doing: &str) -> Result<SqliteConnection, Error> {
        let patience = Patience::new();
        loop {
            if self.is_closed() {
                return Err(error::closed(doing));
            }
            match options.connect().await {
                Ok(connection) => return Ok(connection),
                Err(err) if error::is_busy(&err) => patience.wait(doing).await?,
                Err(err) => return Err(error::map(doing, err)),
            }
        }
    }
}

/// A transaction of [`Connections::begin`]; dropped without a commit it is rolled back, together with its connection.
pub(super) struct Transaction<'a> {
    writers: MutexGuard<'a, Writers>,
    connection: SqliteConnection,
    commit: SqlStr,
    doing: &'static str,
}

impl Transaction<'_> {
    pub(super) async fn run(&mut self, query: Query<'_, Sqlite, SqliteArguments>) -> Result<Answer, Error> {
        let call = Call::of(self.doing, query)?;
        run(&mut self.connection, &call).await.map_err(|err| error::map(self.doing, err))
    }

    /// Runs a text of any number of statements without parameters.
    pub(super) async fn run_script(&mut self, script: SqlStr) -> Result<(), Error> {
        let result = sqlx::raw_sql(script).execute(&mut self.connection).await;
        result.map(|_| ()).map_err(|err| error::map(self.doing, err))
    }

    pub(super) async fn commit(mut self) -> Result<(), Error> {
        let result = sqlx::query(self.commit.clone()).execute(&mut self.connection).await;
        result.map_err(|err| error::map(self.doing, err))?;
        self.writers.last_commit = Some(Instant::now());
        self.writers.durable = Some(self.connection);
        Ok(())
    }
}

/// A statement that can be run more than once.
struct Call {
    sql: SqlStr,
    arguments: SqliteArguments,
}

impl Call {
    fn of(doing: &str, mut query: Query<'_, Sqlite, SqliteArguments>) -> Result<Self, Error> {
        let arguments = query.take_arguments().map_err(|err| error::map(doing, sqlx::Error::Encode(err)))?;
        Ok(Self { sql: query.sql(), arguments: arguments.unwrap_or_default() })
    }
}

/// Runs to the very end, where a commit may fail.
async fn run(connection: &mut SqliteConnection, call: &Call) -> Result<Answer, sqlx::Error> {
    let mut answer = Answer::default();
    let mut results = connection.fetch_many(sqlx::query_with(call.sql.clone(), call.arguments.clone()));
    while let Some(result) = results.try_next().await? {
        match result {
            Either::Left(done) => {
                answer.changes = done.rows_affected();
                answer.last_id = done.last_insert_rowid();
            }
            Either::Right(row) => answer.rows.push(row),
        }
    }
    Ok(answer)
}

async fn pragma(connection: &mut SqliteConnection, text: &SqlStr) -> Result<String, sqlx::Error> {
    sqlx::query(text.clone()).fetch_one(connection).await?.try_get(0)
}
