//! A prepared transaction outlives the server.

use std::sync::Arc;

use sqlstreams_runtime::backend::Backend;
use sqlx::{Connection, PgConnection};

use super::{blocking, forgetful};
use crate::fence::{Field, end, execute};
use crate::harness::postgres_on;
use crate::support::cluster::{Cluster, Mode};

async fn prepare(field: &Field, gid: &str) -> PgConnection {
    let mut producer = field.connection("producer").await;
    execute(&mut producer, "begin; select sqlstreams.produce('notes', '{}')").await;
    execute(&mut producer, &format!("prepare transaction '{gid}'")).await;
    producer
}

/// After a recovery it has another place in the server's tables than before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_with_a_pending_message_is_waited_for_across_a_crash() {
    let cluster = Arc::new(Cluster::start(forgetful()));
    let field = Field::on(postgres_on(&cluster).await).await;
    for gid in ["one", "other"] {
        prepare(&field, gid).await.close().await.expect("a connection can be closed");
    }
    let after = field.produce(1).await[0];
    field.backend().cursor_observe(field.stream, &[field.group]).await.expect("open producers can be observed");
    blocking(&cluster, |cluster| cluster.stop(Mode::Immediate)).await;
    blocking(&cluster, Cluster::start_again).await;
    // The first statement on each old connection fails.
    while field.backend().cursor_position(field.stream, field.group).await.is_err() {}
    while field.backend().message_produce(field.stream, 1, 0, &[crate::harness::message(0)]).await.is_err() {}
    assert_eq!(field.attempts().await, [0; 0]);
    let causes = field.backend().cursor_stall(field.stream, field.group).await.expect("producers can be looked up");
    let mut names: Vec<_> = causes.iter().map(|cause| (cause.name.as_str(), cause.prepared, cause.pid)).collect();
    names.sort_unstable();
    assert_eq!(names, [("one", true, None), ("other", true, None)]);
    end(field.connection("coordinator").await, "commit prepared 'one'").await;
    assert_eq!(field.attempts().await, [0; 0], "the other one is still there");
    end(field.connection("coordinator").await, "commit prepared 'other'").await;
    let drained = field.drain().await;
    assert_eq!(drained[..3], [1, 2, after]);
}
