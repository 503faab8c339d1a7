//! A pooler that passes a connection's start on to its servers.

use sqlstreams_runtime::Client;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::wire::{Start, Wire};
use super::{IGNORING, pool, refused};
use crate::support::database::{Database, fresh_database, server};
use crate::support::pgbouncer::Pooler;

const MARK: &str = "sqlstreams.client=";

/// Gives servers the mark of the client that connects: new ones have it, and old ones go.
async fn pass_on(database: &Database, mut starts: UnboundedReceiver<Start>) {
    let mut connection = PgConnection::connect(database.url()).await.expect("the server takes connections");
    while let Some((start, answer)) = starts.recv().await {
        if let Some((_, rest)) = start.split_once(MARK) {
            let mark: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
            let script = format!(
                "alter database {} set {MARK}'{mark}'; select pg_terminate_backend(pid, 10000) from pg_stat_activity \
                 where datname = current_database() and pid <> pg_backend_pid()",
                database.name()
            );
            sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection).await.expect("a setting can be kept");
        }
        // The connection may be gone.
        let _ = answer.send(());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_passes_a_clients_mark_on_shows_itself_when_connections_compete() {
    for order in ["server_round_robin = 0", "server_round_robin = 1"] {
        let database = fresh_database().await;
        let pooler = Pooler::start(server(), &format!("pool_mode = transaction\n{IGNORING}\n{order}"));
        let (starts, heard) = unbounded_channel();
        let wire = Wire::asking(&pooler.url(database.url()), Some(starts)).await;
        let url = wire.url(database.url());
        tokio::select! {
            () = pass_on(&database, heard) => unreachable!("the wire carries connections"),
            () = async {
                refused(Client::<Postgres>::connect(&url).await, "SQLS-0130", "pooled(true)");
                let client = Client::<Postgres>::new(pool(&url).await).expect("a client on a pool");
                refused(client.migrate().await, "SQLS-0130", "pooled(true)");
            } => {}
        }
    }
}
