//! Faults under load: processes that are killed or frozen, a database that ends, a network that is cut. Each test
//! runs an application of several processes, does it one wrong, and demands that no acknowledged message is lost and that
//! only what was handled around the fault is handled again. It prints a row of the table in docs/guarantees.md.
//!
//! `scripts/faults` runs them, one after another: they measure.

#[path = "../support/mod.rs"]
mod support;

mod child;
mod network;
mod record;
mod rig;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection, Row};
use tokio::time::{interval, timeout};

use crate::child::POISON;
use crate::record::What;
use crate::rig::{Rig, blocking, pass, until};
use crate::support::child::ChildProcess;
use crate::support::cluster::Mode;

/// How often a message may be handled again after an outage: all processes are given up at once, and who takes a range
/// over may be given up a moment later. After three lost owners its messages run alone.
const OUTAGE: usize = 3;

/// Makes a test of each fault on each listed database.
macro_rules! faults {
    ($($module:ident = $rig:expr => [$($fault:ident),* $(,)?];)*) => {
        $(mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "takes a while, and measures: scripts/faults runs it"]
            async fn $fault() {
                super::$fault($rig.await).await;
            })*
        })*
    };
}

faults! {
    direct = crate::rig::Rig::on_postgres(crate::child::DIRECT) => [
        consumers_are_killed, backends_are_terminated, the_server_crashes, the_pools_are_exhausted, a_consumer_freezes,
        the_network_is_cut, the_network_is_silent, a_message_kills_while_the_server_crashes, a_replica_takes_over,
    ];
    pooled = crate::rig::Rig::on_postgres(crate::child::POOLED) => [
        consumers_are_killed, backends_are_terminated, the_server_crashes, the_pools_are_exhausted, a_consumer_freezes,
        the_network_is_cut, the_network_is_silent, a_message_kills_while_the_server_crashes, a_replica_takes_over,
    ];
    file = crate::rig::Rig::on_a_file() => [consumers_are_killed, a_consumer_freezes];
}

/// Two consumers are killed, one after the other, and replaced.
async fn consumers_are_killed(mut rig: Rig) {
    rig.run().await;
    let mut fault = rig.fault();
    for _ in 0..2 {
        rig.consumers.remove(0).kill();
        rig.add_consumer();
        pass(Duration::from_millis(500)).await;
    }
    fault.until = Instant::now();
    rig.end("two of three consumers are killed", fault).await;
}

/// All sessions end, three times.
async fn backends_are_terminated(mut rig: Rig) {
    rig.run().await;
    let mut connection = PgConnection::connect(&rig.cluster().url("postgres")).await.expect("the server is there");
    let mut fault = rig.fault();
    fault.again = OUTAGE;
    for _ in 0..3 {
        let terminating = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
            where backend_type = 'client backend' and pid <> pg_backend_pid()";
        let ended = sqlx::raw_sql(terminating).fetch_one(&mut connection).await.expect("the server answers");
        assert!(ended.get::<i64, _>(0) > 0, "nobody was connected");
        fault.until = Instant::now();
        pass(Duration::from_millis(500)).await;
    }
    rig.end("all backends are terminated, three times", fault).await;
}

/// The server stops as in a crash, and starts again.
async fn the_server_crashes(mut rig: Rig) {
    rig.run().await;
    let cluster = rig.cluster();
    let mut fault = rig.fault();
    fault.again = OUTAGE;
    blocking(move || {
        cluster.stop(Mode::Immediate);
        cluster.start_again();
    })
    .await;
    fault.until = Instant::now();
    rig.end("the server crashes and starts again", fault).await;
}

/// Every connection of the users' pools is taken. Nothing is handled again: the engine has connections of its own.
async fn the_pools_are_exhausted(mut rig: Rig) {
    rig.run().await;
    let mut fault = rig.fault();
    for process in rig.producers.iter_mut().chain(&mut rig.consumers) {
        process.tell("hold");
    }
    pass(rig.times.outage).await;
    for process in rig.producers.iter_mut().chain(&mut rig.consumers) {
        process.tell("release");
    }
    fault.until = Instant::now();
    fault.again = 0;
    rig.end("all connections of the users' pools are taken", fault).await;
}

/// A consumer stands still for longer than its lease.
async fn a_consumer_freezes(mut rig: Rig) {
    rig.run().await;
    let mut fault = rig.fault();
    rig.consumers[0].freeze();
    pass(rig.times.lease * 2).await;
    rig.consumers[0].thaw();
    fault.until = Instant::now();
    rig.end("a consumer freezes for two leases", fault).await;
}

/// Connections break, and new ones too.
async fn the_network_is_cut(mut rig: Rig) {
    rig.run().await;
    let mut fault = rig.fault();
    fault.again = OUTAGE;
    rig.network().cut();
    pass(rig.times.outage).await;
    rig.network().mend();
    fault.until = Instant::now();
    let seconds = rig.times.outage.as_secs();
    rig.end(&format!("the network is cut for {seconds} s"), fault).await;
}

/// Nothing passes, and nobody is told.
async fn the_network_is_silent(mut rig: Rig) {
    rig.run().await;
    let mut fault = rig.fault();
    fault.again = OUTAGE;
    rig.network().fall_silent();
    pass(rig.times.outage).await;
    rig.network().mend();
    fault.until = Instant::now();
    let seconds = rig.times.outage.as_secs();
    rig.end(&format!("the network is silent for {seconds} s"), fault).await;
}

/// A message kills its process each time, and each time the server crashes as well: its count must survive that.
async fn a_message_kills_while_the_server_crashes(mut rig: Rig) {
    const CRASHES: usize = 5;
    /// Three lost owners of its range, three of its own, and one for each crash that takes a claim back which was not
    /// on the disk.
    const DEATHS: usize = 7;
    rig.run().await;
    let mut fault = rig.fault();
    fault.dead.insert(POISON);
    fault.again = 2 * CRASHES;
    rig.producers[0].tell("poison");
    let mut deaths = 0;
    for _ in 0..CRASHES {
        // The poison may be dead before the last crash.
        let next = async {
            let mut ticks = interval(Duration::from_millis(20));
            while !rig.consumers.iter_mut().any(ChildProcess::has_ended) {
                ticks.tick().await;
            }
        };
        let _ = timeout(rig.times.lease * 4, next).await;
        deaths += replace_the_dead(&mut rig);
        let cluster = rig.cluster();
        blocking(move || {
            cluster.stop(Mode::Immediate);
            cluster.start_again();
        })
        .await;
    }
    let mut quiet = Instant::now();
    while quiet.elapsed() < rig.times.lease * 4 {
        pass(Duration::from_millis(50)).await;
        match replace_the_dead(&mut rig) {
            0 => {}
            more => {
                deaths += more;
                quiet = Instant::now();
            }
        }
        assert!(deaths <= CRASHES + DEATHS, "it kills for ever");
    }
    assert!(deaths >= 3, "the poison killed {deaths} processes");
    fault.until = quiet;
    rig.end(&format!("a message kills {deaths} processes during {CRASHES} crashes of the server"), fault).await;
}

/// Starts a consumer for each that is gone; how many were.
fn replace_the_dead(rig: &mut Rig) -> usize {
    let before = rig.consumers.len();
    rig.consumers.retain_mut(|consumer| !consumer.has_ended());
    let gone = before - rig.consumers.len();
    for _ in 0..gone {
        rig.add_consumer();
    }
    gone
}

/// The server is lost with its disk, and a replica takes over that had received nothing for a second.
async fn a_replica_takes_over(mut rig: Rig) {
    let primary = rig.cluster();
    let replica = blocking(move || primary.replica()).await;
    rig.run().await;
    let mut beside = PgConnection::connect(&replica.url("postgres")).await.expect("the replica answers");
    let detach = "alter system set primary_conninfo = ''; select pg_reload_conf()";
    for statement in detach.split("; ") {
        sqlx::raw_sql(statement).execute(&mut beside).await.expect("the replica can be told");
    }
    until("the replica receives no more", async || {
        let receivers = sqlx::raw_sql("select count(*) from pg_stat_wal_receiver").fetch_one(&mut beside).await;
        receivers.expect("the replica answers").get::<i64, _>(0) == 0
    })
    .await;
    let detached = Instant::now();
    pass(Duration::from_secs(1)).await;
    let primary = rig.cluster();
    let mut fault = rig.fault();
    blocking(move || primary.stop(Mode::Immediate)).await;
    fault.again = OUTAGE;
    // A replica knows of settlements what it has received.
    fault.back += fault.from - detached;
    drop(beside);
    let replica = blocking(move || {
        replica.promote();
        replica
    })
    .await;
    // What the dead server still acknowledged has been heard when its clients have noticed its end.
    let acknowledged: BTreeSet<u64> = acknowledged(&rig);
    let stored = stored(&replica.url("postgres")).await;
    fault.gone = acknowledged.difference(&stored).copied().collect();
    rig.network().lead_to(replica.port());
    fault.until = Instant::now();
    rig.end("a replica that misses a second takes over", fault).await;
    drop(replica);
}

fn acknowledged(rig: &Rig) -> BTreeSet<u64> {
    let events = rig.record.events();
    events.iter().filter(|event| event.what == What::Acknowledged).map(|event| event.message).collect()
}

/// The messages in the log of that server.
async fn stored(url: &str) -> BTreeSet<u64> {
    let mut connection = PgConnection::connect(url).await.expect("the server is there");
    let query = sqlx::raw_sql("select (payload ->> 'n')::bigint from sqlstreams.message_log_1");
    let rows = query.fetch_all(&mut connection).await.expect("the log can be read");
    rows.iter().map(|row| row.get::<i64, _>(0).cast_unsigned()).collect()
}
