//! Which commits are on the disk when a call returns. The server is the test's own and writes its log only for
//! commits that wait for it, so that the position on the disk tells them apart.

use sqlstreams_runtime::backend::postgres::PostgresBackend;
use sqlstreams_runtime::backend::{
    Backend, ClaimParams, DiscardScope, ExceptionNext, ExceptionSettleParams, ExceptionTakeParams, ProgressParams,
    SettleParams,
};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, PresenceId, StreamId};
use sqlstreams_runtime::schema::DeliveryLog;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

use crate::harness::{
    self, Installation, LONG, SCHEMA, claim_params, group_params, letter_params, message, presence_params, retry,
    settle_params, stream_params, trouble,
};
use crate::support::cluster::{Cluster, Options};

const REPEATS: usize = 20;

/// Once in a while something else writes to the log between a call and the look at it.
const NEARLY_ALL: usize = REPEATS - 2;
const HARDLY_ANY: usize = 2;

struct Lab {
    installation: Installation,
    observer: PgPool,
    stream: StreamId,
    group: GroupId,
    presence: PresenceId,
    // Last, since the database is dropped before its server.
    _cluster: Cluster,
}

impl Lab {
    async fn new() -> Self {
        let options = Options::default()
            .with("wal_writer_delay", "10s")
            .with("wal_writer_flush_after", "1GB")
            .with("full_page_writes", "off")
            .with("bgwriter_lru_maxpages", "0")
            .with("checkpoint_timeout", "1h")
            .with("autovacuum", "off");
        let cluster = Cluster::start(options);
        let installation = harness::postgres_on(&cluster).await;
        let observer = PgPoolOptions::new().max_connections(1);
        let observer = observer.connect(installation.database().url()).await.expect("a connection");
        let stream = installation.stream("events").await;
        let group = installation.group(stream, "readers").await;
        let presence = installation.presence().await;
        Self { installation, observer, stream, group, presence, _cluster: cluster }
    }

    /// Brings everything before the call to the disk.
    async fn flush(&self) {
        // The server's own processes write as well, now and then.
        for _ in 0..100 {
            let emit = sqlx::raw_sql("select pg_logical_emit_message(true, 'flush', '')");
            emit.execute(&self.observer).await.expect("a durable commit");
            if !self.is_behind().await {
                return;
            }
        }
        panic!("a commit that waits brings the log to the disk");
    }

    /// Whether the end of the log is not on the disk.
    async fn is_behind(&self) -> bool {
        let look = "select pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()";
        sqlx::query_scalar(look).fetch_one(&self.observer).await.expect("a look at the log")
    }

    /// Counts how many of the calls were not on the disk when they returned; what `before` makes is there.
    async fn unflushed<T>(&self, before: impl AsyncFn(usize) -> T, call: impl AsyncFn(T)) -> usize {
        let mut behind = 0;
        for number in 0..REPEATS {
            let ready = before(number).await;
            self.flush().await;
            call(ready).await;
            behind += usize::from(self.is_behind().await);
        }
        behind
    }

    async fn claim(&self, width: i64) -> LeaseToken {
        let Self { installation, stream, group, presence, .. } = self;
        installation.claim(*stream, *group, *presence, width).await.0
    }

    /// A message in trouble that is due and whose id is the number of the repeat.
    async fn trouble(&self, number: usize) -> i64 {
        let id = i64::try_from(number).expect("small") + 1;
        let token = self.claim(1).await;
        let exceptions = vec![trouble(id, retry(std::time::Duration::ZERO))];
        let params = SettleParams { exceptions, ..settle_params(self.stream, token) };
        assert!(self.installation.backend.lease_settle(&params).await.expect("a settlement"));
        id
    }

    fn take_params(&self) -> ExceptionTakeParams {
        ExceptionTakeParams {
            stream: self.stream,
            group: self.group,
            presence: self.presence,
            token: LeaseToken::mint(),
            limit: 10,
            versions: vec![1],
            suspects: 1,
            max_kills: 3,
            due_from: None,
            now: None,
        }
    }
}

#[tokio::test]
async fn a_claim_does_not_wait_for_the_disk() {
    let lab = Lab::new().await;
    lab.installation.produce(lab.stream, 10 * REPEATS).await;
    lab.claim(1).await;
    let backend = lab.installation.backend.clone();
    let taking = lab
        .unflushed(
            async |_number| claim_params(lab.stream, lab.group, lab.presence, 1),
            async |params| {
                let row = backend.claim_take(&params).await.expect("a claim");
                assert_eq!(row.high, row.low + 1);
            },
        )
        .await;
    assert!(taking >= NEARLY_ALL, "{taking} of {REPEATS} claims committed asynchronously");
    let settling = lab
        .unflushed(
            async |_number| {
                let settled = vec![lab.claim(1).await];
                ClaimParams { settled, ..claim_params(lab.stream, lab.group, lab.presence, 0) }
            },
            async |params| {
                backend.claim_take(&params).await.expect("a clean end");
            },
        )
        .await;
    assert!(settling >= NEARLY_ALL, "{settling} of {REPEATS} clean ends committed asynchronously");
}

#[tokio::test]
async fn a_report_of_progress_and_an_observation_do_not_wait_for_the_disk() {
    let lab = Lab::new().await;
    lab.installation.produce(lab.stream, 1000).await;
    let token = lab.claim(1000).await;
    let backend = lab.installation.backend.clone();
    let reporting = lab
        .unflushed(
            async |number| [ProgressParams { token, done: vec![(0, i64::try_from(number).expect("small") + 1)] }],
            async |progress| {
                let owned = backend.lease_report(lab.stream, lab.group, lab.presence, &[token], &progress).await;
                assert_eq!(owned.expect("a report"), [token]);
            },
        )
        .await;
    assert!(reporting >= NEARLY_ALL, "{reporting} of {REPEATS} reports committed asynchronously");
    let observing = lab
        .unflushed(
            async |_number| {
                lab.installation.produce(lab.stream, 1).await;
                // An observation that still waits is kept.
                let cursor = lab.installation.table_of("consumer_group_cursor", lab.stream);
                lab.installation.execute(&format!("update {cursor} set exact_head = null, exact_xids = null")).await;
            },
            async |()| {
                backend.cursor_observe(lab.stream, &[lab.group]).await.expect("an observation");
            },
        )
        .await;
    assert!(observing >= NEARLY_ALL, "{observing} of {REPEATS} observations committed asynchronously");
}

#[tokio::test]
async fn a_produced_message_is_on_the_disk() {
    let lab = Lab::new().await;
    let backend = lab.installation.backend.clone();
    let producing = lab
        .unflushed(
            async |number| [message(number)],
            async |messages| {
                backend.message_produce(lab.stream, 1, 0, &messages).await.expect("a message");
            },
        )
        .await;
    assert!(producing <= HARDLY_ANY, "{producing} of {REPEATS} messages were not on the disk");
}

/// What the user's pool or the database's default says about durability is meant for other work.
#[tokio::test]
async fn a_message_produced_by_a_session_with_asynchronous_commits_is_on_the_disk() {
    let lab = Lab::new().await;
    let options: PgConnectOptions = lab.installation.database().url().parse().expect("a url");
    let options = options.options([("synchronous_commit", "off")]);
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.expect("a pool");
    let backend = PostgresBackend::new(pool.clone(), SCHEMA).expect("a backend");
    let producing = lab
        .unflushed(
            async |number| [message(number)],
            async |messages| {
                backend.message_produce(lab.stream, 1, 0, &messages).await.expect("a message");
            },
        )
        .await;
    assert!(producing <= HARDLY_ANY, "{producing} of {REPEATS} messages were not on the disk");
    let setting: String = sqlx::query_scalar("show synchronous_commit").fetch_one(&pool).await.expect("an answer");
    assert_eq!(setting, "off", "the session's own setting stays");
    let plain = lab
        .unflushed(
            async |number| format!("create table own_{number} ()"),
            async |statement| {
                sqlx::raw_sql(AssertSqlSafe(statement)).execute(&pool).await.expect("a table");
            },
        )
        .await;
    assert!(plain >= NEARLY_ALL, "the user's own {plain} of {REPEATS} commits do not wait: the test can tell");
}

async fn settlements_are_on_the_disk(lab: &Lab) {
    lab.installation.produce(lab.stream, 10 * REPEATS).await;
    let backend = lab.installation.another().await;
    let settling = lab
        .unflushed(
            async |number| {
                let exceptions = vec![trouble(i64::try_from(number).expect("small") + 1000, retry(LONG))];
                SettleParams { exceptions, ..settle_params(lab.stream, lab.claim(1).await) }
            },
            async |params| {
                assert!(backend.lease_settle(&params).await.expect("a settlement"));
            },
        )
        .await;
    assert!(settling <= HARDLY_ANY, "{settling} of {REPEATS} settlements were not on the disk");
}

async fn lost_owners_are_counted_on_the_disk(lab: &Lab) {
    lab.installation.produce(lab.stream, 10 * REPEATS).await;
    let backend = lab.installation.another().await;
    let reclaiming = lab
        .unflushed(
            async |_number| {
                let gone = presence_params(std::time::Duration::ZERO);
                backend.presence_enter(&gone).await.expect("a presence that is over");
                lab.installation.claim(lab.stream, lab.group, gone.id, 1).await;
            },
            async |()| {
                let taken = backend.lease_reclaim(lab.stream, lab.group, lab.presence, LeaseToken::mint()).await;
                assert_eq!(taken.expect("a look").expect("a range without owner").reclaims, 1);
            },
        )
        .await;
    assert!(reclaiming <= HARDLY_ANY, "{reclaiming} of {REPEATS} takeovers were not on the disk");
}

async fn taken_exceptions_are_on_the_disk(lab: &Lab) {
    lab.installation.produce(lab.stream, 10 * REPEATS).await;
    let backend = lab.installation.another().await;
    let taking = lab
        .unflushed(
            async |number| lab.trouble(number).await,
            async |id| {
                let taken = backend.exception_take(&lab.take_params()).await.expect("an answer");
                assert_eq!(taken.iter().map(|row| row.id.0).collect::<Vec<_>>(), [id]);
            },
        )
        .await;
    assert!(taking <= HARDLY_ANY, "{taking} of {REPEATS} takes were not on the disk");
    let settling = lab
        .unflushed(
            async |number| {
                let id = lab.trouble(REPEATS + number).await;
                let params = lab.take_params();
                assert_eq!(backend.exception_take(&params).await.expect("an answer").len(), 1);
                let (stream, group, token) = (lab.stream, lab.group, params.token);
                let exceptions = vec![trouble(id, retry(LONG))];
                ExceptionSettleParams { stream, group, token, exceptions, log: DeliveryLog::Off, now: None }
            },
            async |params| {
                backend.exception_settle(&params).await.expect("a settlement");
            },
        )
        .await;
    assert!(settling <= HARDLY_ANY, "{settling} of {REPEATS} outcomes were not on the disk");
}

async fn what_a_person_was_told_is_on_the_disk(lab: &Lab) {
    lab.installation.produce(lab.stream, 10 * REPEATS).await;
    let backend = lab.installation.another().await;
    let kill = async |number: usize| {
        let id = i64::try_from(number).expect("small") + 2000;
        let exceptions = vec![trouble(id, ExceptionNext::Dead { error: "no use".to_owned() })];
        let params = SettleParams { exceptions, ..settle_params(lab.stream, lab.claim(1).await) };
        assert!(backend.lease_settle(&params).await.expect("a settlement"));
    };
    let params = letter_params(lab.stream, lab.group);
    let log = lab.installation.table_of("exception_payload", lab.stream);
    let columns = "message_id, created_at, schema_version, codec, payload";
    let copies =
        format!("insert into {log} ({columns}) select i, now(), 1, 0, '{{}}' from generate_series(2000, 2999) i");
    lab.installation.execute(&copies).await;
    let redriving = lab
        .unflushed(kill, async |()| {
            let batch = backend.letter_redrive(&params, std::time::Duration::from_secs(3600), None).await;
            assert_eq!(batch.expect("a redrive").changed, 1);
        })
        .await;
    assert!(redriving <= HARDLY_ANY, "{redriving} of {REPEATS} redrives were not on the disk");
    let discarding = lab
        .unflushed(
            async |number| kill(REPEATS + number).await,
            async |()| {
                let batch = backend.letter_discard(&params, DiscardScope::Dead).await;
                assert_eq!(batch.expect("a discard").changed, 1);
            },
        )
        .await;
    assert!(discarding <= HARDLY_ANY, "{discarding} of {REPEATS} discards were not on the disk");
}

async fn registrations_are_on_the_disk(lab: &Lab) {
    let backend = lab.installation.another().await;
    let streams = lab
        .unflushed(
            async |number| stream_params(&format!("events.s{number}")),
            async |params| {
                backend.stream_register(&params).await.expect("a stream");
            },
        )
        .await;
    assert!(streams <= HARDLY_ANY, "{streams} of {REPEATS} streams were not on the disk");
    let groups = lab
        .unflushed(
            async |number| group_params(lab.stream, &format!("group-{number}")),
            async |params| {
                backend.group_register(&params).await.expect("a group");
            },
        )
        .await;
    assert!(groups <= HARDLY_ANY, "{groups} of {REPEATS} groups were not on the disk");
}

async fn what_is_told_and_counted_is_on_the_disk(lab: &Lab) {
    lost_owners_are_counted_on_the_disk(lab).await;
    taken_exceptions_are_on_the_disk(lab).await;
    settlements_are_on_the_disk(lab).await;
    what_a_person_was_told_is_on_the_disk(lab).await;
    registrations_are_on_the_disk(lab).await;
}

#[tokio::test]
async fn settlements_counts_and_registrations_are_on_the_disk() {
    what_is_told_and_counted_is_on_the_disk(&Lab::new().await).await;
}

/// The database's default is for the user's own work.
#[tokio::test]
async fn a_database_with_asynchronous_commits_changes_nothing() {
    let lab = Lab::new().await;
    let name = lab.installation.database().name().to_owned();
    lab.installation.execute(&format!("alter database {name} set synchronous_commit = off")).await;
    what_is_told_and_counted_is_on_the_disk(&lab).await;
}
