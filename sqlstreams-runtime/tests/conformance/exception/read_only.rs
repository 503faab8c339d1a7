//! A group without trouble costs no writing.

use tokio::time::timeout;

use sqlstreams_runtime::identity::LeaseToken;
use sqlx::Connection;

use super::{MINUTE, Setting};
use crate::harness::{self, PATIENCE, claim_params, retry, trouble};
use crate::support::cluster::{Cluster, Options};

/// On a server of its own, where nobody else takes transaction ids.
#[tokio::test]
async fn looking_for_trouble_takes_no_transaction_id_on_postgres() {
    let cluster = Cluster::start(Options::default().with("autovacuum", "off"));
    let installation = harness::postgres_on(&cluster).await;
    let setting = Setting::with_trouble(&installation, vec![trouble(1, retry(MINUTE))]).await;
    let next_xid = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    let before = installation.number(next_xid).await;
    for _ in 0..20 {
        look(&setting).await;
    }
    assert_eq!(installation.number(next_xid).await, before, "looking took transaction ids");
}

/// Somebody else holds the write lock all the time: who needs it, waits.
#[tokio::test]
async fn looking_for_trouble_needs_no_write_lock_on_sqlite() {
    let installation = harness::sqlite().await;
    let setting = Setting::with_trouble(&installation, vec![trouble(1, retry(MINUTE))]).await;
    let mut other = installation.sqlite_connection().await;
    let lock = other.begin_with("begin immediate").await.expect("the write lock");
    for _ in 0..20 {
        timeout(PATIENCE / 12, look(&setting)).await.expect("a look does not wait for a writer");
    }
    drop(lock);
}

/// What an idle process asks about a group in which nothing is due.
async fn look(setting: &Setting<'_>) {
    let Setting { installation, stream, group, presence } = *setting;
    let backend = &installation.backend;
    assert!(setting.take(MINUTE / 2, 10).await.1.is_empty());
    backend.exception_due(stream, group).await.expect("an answer").expect("a message waits");
    let taken = backend.lease_reclaim(stream, group, presence, LeaseToken::mint()).await.expect("an answer");
    assert!(taken.is_none());
    let taken = backend.parked_take(&claim_params(stream, group, presence, 10), &[1]).await.expect("an answer");
    assert!(taken.is_none());
    backend.lease_report(stream, group, presence, &[], &[]).await.expect("an answer");
    backend.cursor_position(stream, group).await.expect("an answer");
}
