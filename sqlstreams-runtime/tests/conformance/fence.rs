//! No group passes an id that a running transaction can still fill, and no transaction stalls what is not
//! its own.

use std::sync::Arc;
use std::time::Instant;

use sqlstreams_runtime::backend::postgres::PostgresBackend;
use sqlstreams_runtime::backend::{Backend, ClaimRow};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, MessageId, PresenceId, StreamId};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Postgres, Transaction};

use crate::harness::{Installation, PATIENCE, claim_params, ids, message, pass_the_head};

pub mod declared;
mod exact_proof;
mod frozen_client;
mod isolation;
mod late_commit;
mod prepared;
mod stall;
mod transaction_id;
mod unrelated;
mod waiting_claim;

/// No message at all.
const NOTHING: [i64; 0] = [];

/// A stream with one group, on Postgres.
pub struct Field {
    pub installation: Installation,
    pub stream: StreamId,
    pub group: GroupId,
    pub presence: PresenceId,
}

impl Field {
    pub async fn new() -> Self {
        Self::on(crate::harness::postgres().await).await
    }

    pub async fn on(installation: Installation) -> Self {
        let stream = installation.stream("notes").await;
        let group = installation.group(stream, "readers").await;
        let presence = installation.presence().await;
        Self { installation, stream, group, presence }
    }

    pub fn backend(&self) -> &Arc<PostgresBackend> {
        self.installation.postgres()
    }

    /// The name of one of the stream's tables.
    pub fn table(&self, name: &str) -> String {
        self.installation.table_of(name, self.stream)
    }

    /// The text of one of the engine's statements for the stream.
    pub fn statement(&self, name: &str) -> String {
        let statements = self.backend().statements(self.stream);
        let found = statements.into_iter().find(|(known, _)| *known == name);
        found.expect("the statement exists").1.as_str().to_owned()
    }

    /// A connection of the test's own, under a name.
    pub async fn connection(&self, name: &str) -> PgConnection {
        connection(self.installation.database().url(), name).await
    }

    pub async fn produce(&self, count: usize) -> Vec<i64> {
        bare(self.installation.produce(self.stream, count).await)
    }

    /// Appends one message in the caller's transaction.
    pub async fn produce_in(&self, tx: &mut Transaction<'_, Postgres>) -> i64 {
        let ids = self.backend().produce_in(tx, self.stream, 1, 0, &[message(0)]).await;
        ids.expect("a message can be produced in a transaction")[0].0
    }

    /// One claim.
    pub async fn claim(&self, width: i64) -> (LeaseToken, ClaimRow) {
        let params = claim_params(self.stream, self.group, self.presence, width);
        (params.token, self.backend().claim_take(&params).await.expect("a claim answers"))
    }

    /// The ids that a claim took and that a later statement reads.
    pub async fn read(&self, row: &ClaimRow) -> Vec<i64> {
        ids(&self.installation.read(self.stream, row.low, row.high).await)
    }

    /// Claims and reads until every drawn id is handed out.
    pub async fn drain(&self) -> Vec<i64> {
        let deadline = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        loop {
            let (_, row) = self.claim(100).await;
            all.extend(self.read(&row).await);
            if !row.contended && row.high >= row.head {
                return all;
            }
            assert!(Instant::now() < deadline, "the group does not reach the head: {row:?}");
            pass_the_head(&**self.backend(), self.stream, self.group, &row).await;
        }
    }

    /// What a group in whose way a producer is can get: claims, observes and claims again, many times.
    pub async fn attempts(&self) -> Vec<i64> {
        let mut all = Vec::new();
        for _ in 0..20 {
            let (_, row) = self.claim(100).await;
            all.extend(self.read(&row).await);
            pass_the_head(&**self.backend(), self.stream, self.group, &row).await;
        }
        all
    }

    /// The newest drawn id.
    pub async fn drawn(&self) -> i64 {
        let sequence = format!("{}_id_seq", self.table("message_log"));
        self.installation.number(&format!("select coalesce(pg_sequence_last_value('{sequence}'), 0)")).await
    }
}

pub async fn connection(url: &str, name: &str) -> PgConnection {
    let options: PgConnectOptions = url.parse().expect("the test's URL is one of Postgres");
    options.application_name(name).connect().await.expect("the server takes connections")
}

/// Runs statements on a connection.
pub async fn execute(connection: &mut PgConnection, statements: &str) {
    let result = sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(connection).await;
    result.expect("a test's own statement runs");
}

/// The backend's process id.
pub async fn pid(connection: &mut PgConnection) -> i32 {
    let pid = sqlx::query_scalar("select pg_backend_pid()").fetch_one(connection).await;
    pid.expect("a backend knows its process id")
}

/// A transaction that owns an xid and has nothing to do with any stream.
pub async fn old_transaction(url: &str) -> PgConnection {
    let mut connection = connection(url, "unrelated").await;
    execute(&mut connection, "begin; create table unrelated ()").await;
    connection
}

/// Waits until the query, which answers a boolean, says so.
pub async fn until(connection: &mut PgConnection, what: &str, query: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let query = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
        if query.fetch_one(&mut *connection).await.expect("a test's own query answers") {
            return;
        }
        assert!(Instant::now() < deadline, "it never happened: {what}");
        tokio::task::yield_now().await;
    }
}

/// Waits until the backend waits for a lock.
pub async fn until_locked_out(connection: &mut PgConnection, pid: i32) {
    let query = format!("select exists (select from pg_locks where pid = {pid} and not granted)");
    until(connection, "the backend waits for a lock", &query).await;
}

pub fn bare(ids: Vec<MessageId>) -> Vec<i64> {
    ids.into_iter().map(|id| id.0).collect()
}

/// Ends a connection's transaction and the connection.
pub async fn end(mut connection: PgConnection, how: &str) {
    execute(&mut connection, how).await;
    connection.close().await.expect("a connection can be closed");
}
