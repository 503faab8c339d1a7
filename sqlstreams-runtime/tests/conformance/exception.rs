//! Messages in trouble: `exception_take`, `exception_settle`, `exception_return`, `exception_due`.

use std::time::Duration;

use sqlstreams_runtime::Timestamp;
use sqlstreams_runtime::backend::{
    ExceptionNext, ExceptionParams, ExceptionRow, ExceptionSettleParams, ExceptionTakeParams, SettleParams,
};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, MessageId, PresenceId, StreamId};
use sqlstreams_runtime::schema::DeliveryLog;

use crate::harness::{Installation, on_both, retry, settle_params, trouble};

mod lost;
mod plan;
mod read_only;

on_both! {
    take_gives_due_messages_and_no_others,
    take_gives_at_most_its_limit_the_longest_due_first,
    take_leaves_other_versions_for_other_builds,
    take_gives_the_message_with_its_counters,
    take_gives_a_message_that_the_log_does_not_hold_any_more,
    take_stays_in_its_group,
    take_gives_every_message_to_one_of_eight_processes,
    settle_counts_what_happened,
    settle_waits_from_the_time_that_it_is_told,
    settle_of_what_another_process_took_changes_nothing,
    settle_twice_counts_once,
    return_makes_everything_ready_again_and_counts_nothing,
    return_of_what_was_settled_or_taken_by_others_changes_nothing,
    due_says_how_long_until_the_next_message,
    take_gives_the_copy_of_a_message_that_the_log_does_not_hold_any_more,
    take_begins_at_its_bound_and_finds_suspects_below_it,
}

pub const NOW: Timestamp = Timestamp(1_700_000_000_000_000);
pub const MINUTE: Duration = Duration::from_secs(60);
/// So much later than `NOW` that everything is due, also what the database's clock made ready.
pub const FAR: Duration = Duration::from_secs(1_000_000_000);
const NONE: [i64; 0] = [];

/// A stream with forty messages, a group and a process.
pub struct Setting<'a> {
    pub installation: &'a Installation,
    pub stream: StreamId,
    pub group: GroupId,
    pub presence: PresenceId,
}

impl<'a> Setting<'a> {
    pub async fn new(installation: &'a Installation) -> Self {
        let stream = installation.stream("events").await;
        let group = installation.group(stream, "readers").await;
        installation.produce(stream, 40).await;
        Self { installation, stream, group, presence: installation.presence().await }
    }

    /// Claims twenty messages, of which these come into trouble at `NOW`.
    pub async fn with_trouble(installation: &'a Installation, exceptions: Vec<ExceptionParams>) -> Self {
        let setting = Self::new(installation).await;
        setting.trouble(exceptions).await;
        setting
    }

    pub async fn trouble(&self, exceptions: Vec<ExceptionParams>) {
        let (token, _) = self.installation.claim(self.stream, self.group, self.presence, 20).await;
        let params = SettleParams { exceptions, now: Some(NOW), ..settle_params(self.stream, token) };
        assert!(self.installation.backend.lease_settle(&params).await.expect("a settlement"));
    }

    /// What a take at `NOW` plus `later` asks for.
    pub fn take_params(&self, later: Duration, limit: i64) -> ExceptionTakeParams {
        ExceptionTakeParams {
            stream: self.stream,
            group: self.group,
            presence: self.presence,
            token: LeaseToken::mint(),
            limit,
            versions: vec![1],
            suspects: 1,
            max_kills: 3,
            due_from: None,
            now: Some(NOW.plus(later)),
        }
    }

    pub async fn take(&self, later: Duration, limit: i64) -> (LeaseToken, Vec<ExceptionRow>) {
        let params = self.take_params(later, limit);
        (params.token, self.installation.backend.exception_take(&params).await.expect("an answer"))
    }

    /// The ids whose outcomes were recorded.
    pub async fn settle(&self, token: LeaseToken, exceptions: Vec<ExceptionParams>) -> Vec<i64> {
        let (stream, group) = (self.stream, self.group);
        let log = DeliveryLog::Off;
        let params = ExceptionSettleParams { stream, group, token, exceptions, log, now: Some(NOW) };
        let recorded = self.installation.backend.exception_settle(&params).await.expect("a settlement");
        let mut recorded: Vec<i64> = recorded.into_iter().map(|id| id.0).collect();
        recorded.sort_unstable();
        recorded
    }

    pub async fn troubles(&self) -> Vec<String> {
        self.installation.troubles(self.stream, self.group).await
    }
}

pub fn ids(rows: &[ExceptionRow]) -> Vec<i64> {
    rows.iter().map(|row| row.id.0).collect()
}

/// The messages 1 to `count` in trouble, due a minute later, the lowest id first.
pub fn due_in_order(count: i64) -> Vec<ExceptionParams> {
    let due = |id: i64| MINUTE - Duration::from_micros((count - id).cast_unsigned());
    (1..=count).map(|id| trouble(id, retry(due(id)))).collect()
}

fn later(after: Duration) -> ExceptionNext {
    ExceptionNext::Later { after }
}

fn dead() -> ExceptionNext {
    ExceptionNext::Dead { error: "no use".to_owned() }
}

async fn take_gives_due_messages_and_no_others(installation: &Installation) {
    let exceptions = vec![
        trouble(1, retry(MINUTE)),
        trouble(2, later(2 * MINUTE)),
        trouble(3, ExceptionNext::Return),
        trouble(4, dead()),
    ];
    let setting = Setting::with_trouble(installation, exceptions).await;
    let micro = Duration::from_micros(1);
    assert_eq!(ids(&setting.take(Duration::ZERO, 10).await.1), [3]);
    assert_eq!(ids(&setting.take(Duration::ZERO, 10).await.1), NONE, "it was taken");
    assert_eq!(ids(&setting.take(MINUTE - micro, 10).await.1), NONE);
    assert_eq!(ids(&setting.take(MINUTE, 10).await.1), [1]);
    assert_eq!(ids(&setting.take(2 * MINUTE - micro, 10).await.1), NONE);
    assert_eq!(ids(&setting.take(2 * MINUTE, 10).await.1), [2]);
    assert_eq!(ids(&setting.take(9 * MINUTE, 10).await.1), NONE, "a dead letter stays dead");
    let position = installation.backend.cursor_position(setting.stream, setting.group).await.expect("a position");
    assert_eq!((position.ready, position.inflight, position.dead), (0, 3, 1));
    assert_eq!(position.settled, 0, "what runs again is not settled");
}

async fn take_gives_at_most_its_limit_the_longest_due_first(installation: &Installation) {
    let exceptions = (1..=10).map(|id| trouble(id, retry(MINUTE * (11 - u32::try_from(id).expect("small")))));
    let setting = Setting::with_trouble(installation, exceptions.collect()).await;
    assert_eq!(ids(&setting.take(MINUTE * 20, 0).await.1), NONE);
    assert_eq!(ids(&setting.take(MINUTE * 20, 3).await.1), [8, 9, 10]);
    assert_eq!(ids(&setting.take(MINUTE * 20, 1).await.1), [7]);
    assert_eq!(ids(&setting.take(MINUTE * 20, 100).await.1), [1, 2, 3, 4, 5, 6], "in the order of the ids");
}

async fn take_leaves_other_versions_for_other_builds(installation: &Installation) {
    let versioned = |id, version| ExceptionParams { schema_version: version, ..trouble(id, ExceptionNext::Return) };
    let exceptions = vec![versioned(1, 1), versioned(2, 2), versioned(3, 3), versioned(4, 1)];
    let setting = Setting::with_trouble(installation, exceptions).await;
    for (versions, expected) in [(vec![], vec![]), (vec![2, 9], vec![2]), (vec![1, 2], vec![1, 4]), (vec![3], vec![3])]
    {
        let params = ExceptionTakeParams { versions: versions.clone(), ..setting.take_params(MINUTE, 10) };
        let taken = installation.backend.exception_take(&params).await.expect("an answer");
        assert_eq!(ids(&taken), expected, "a build that reads {versions:?}");
    }
}

async fn take_gives_the_message_with_its_counters(installation: &Installation) {
    let setting = Setting::with_trouble(installation, vec![trouble(5, retry(MINUTE))]).await;
    let (token, taken) = setting.take(MINUTE, 10).await;
    assert_eq!((taken[0].attempts, taken[0].failures, taken[0].delays), (1, 1, 0));
    let read = installation.read(setting.stream, 4, 5).await;
    let message = taken[0].message.as_ref().expect("the log holds it");
    assert_eq!((message.id, taken[0].id), (MessageId(5), MessageId(5)));
    assert_eq!((message.schema_version, message.codec), (1, 0));
    assert_eq!((message.created_at, &message.payload), (read[0].created_at, &read[0].payload));
    assert!(message.payload.is_some());
    setting.settle(token, vec![trouble(5, later(MINUTE))]).await;
    let (token, taken) = setting.take(MINUTE, 10).await;
    assert_eq!((taken[0].attempts, taken[0].failures, taken[0].delays), (2, 1, 1));
    setting.settle(token, vec![trouble(5, retry(MINUTE))]).await;
    let taken = setting.take(MINUTE, 10).await.1;
    assert_eq!((taken[0].attempts, taken[0].failures, taken[0].delays), (3, 2, 1));
}

async fn take_gives_a_message_that_the_log_does_not_hold_any_more(installation: &Installation) {
    let setting = Setting::with_trouble(installation, vec![trouble(5, retry(MINUTE)), trouble(6, retry(MINUTE))]).await;
    let log = installation.table_of("message_log", setting.stream);
    installation.execute(&format!("delete from {log} where id = 5")).await;
    let taken = setting.take(MINUTE, 10).await.1;
    assert_eq!(ids(&taken), [5, 6]);
    assert!(taken[0].message.is_none() && taken[1].message.is_some());
}

/// What retention keeps of a message that is still in trouble.
pub async fn keep_copy_only(installation: &Installation, stream: StreamId, id: i64) {
    let columns = "created_at, schema_version, codec, routing_key, message_key, headers, payload, payload_bytes";
    let (log, copy) =
        (installation.table_of("message_log", stream), installation.table_of("exception_payload", stream));
    let copying = format!("insert into {copy} (message_id, {columns}) select id, {columns} from {log} where id = {id}");
    installation.execute(&format!("{copying}; delete from {log} where id = {id}")).await;
}

async fn take_gives_the_copy_of_a_message_that_the_log_does_not_hold_any_more(installation: &Installation) {
    let setting = Setting::with_trouble(installation, vec![trouble(5, retry(MINUTE)), trouble(6, retry(MINUTE))]).await;
    let read = installation.read(setting.stream, 4, 6).await;
    keep_copy_only(installation, setting.stream, 5).await;
    let taken = setting.take(MINUTE, 10).await.1;
    assert_eq!(ids(&taken), [5, 6]);
    for (row, stored) in taken.iter().zip(&read) {
        let message = row.message.as_ref().expect("the log or the copy holds it");
        assert_eq!((message.id, message.created_at, &message.payload), (stored.id, stored.created_at, &stored.payload));
        assert_eq!((message.schema_version, message.codec, &message.headers), (1, 0, &None));
        assert!(message.payload.is_some());
    }
}

async fn take_begins_at_its_bound_and_finds_suspects_below_it(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(6)).await;
    let taken = setting.take(MINUTE, 2).await.1;
    assert_eq!(ids(&taken), [1, 2]);
    let bound = taken.iter().map(|row| row.due).max();
    assert_eq!(bound, Some(NOW.plus(MINUTE - Duration::from_micros(4))), "when the second one became due");
    let take = async |due_from, limit| {
        let params = ExceptionTakeParams { due_from, suspects: 0, ..setting.take_params(MINUTE, limit) };
        installation.backend.exception_take(&params).await.expect("an answer")
    };
    // What was let go is below the bound now.
    let back = setting.take_params(MINUTE, 1);
    assert_eq!(ids(&installation.backend.exception_take(&back).await.expect("an answer")), [3]);
    let early = installation.table_of("exception_queue", setting.stream);
    installation.backend.exception_return(setting.stream, setting.group, back.token).await.expect("a return");
    let at = if installation.is_postgres() { "timestamptz '2001-01-01'" } else { "1" };
    installation.execute(&format!("update {early} set can_run_after = {at} where message_id = 3")).await;
    assert_eq!(ids(&take(bound, 2).await), [4, 5], "the bound itself is included, what is below it is not");
    assert_eq!(ids(&take(bound, 10).await), [6]);
    assert_eq!(ids(&take(bound, 10).await), NONE);
    assert_eq!(ids(&take(None, 10).await), [3], "a look from the beginning finds it");
    // A suspect is found whatever the bound is.
    installation.expire(setting.presence).await;
    let presence = installation.presence().await;
    let params =
        ExceptionTakeParams { presence, due_from: Some(NOW.plus(FAR)), suspects: 1, ..setting.take_params(MINUTE, 10) };
    assert_eq!(ids(&installation.backend.exception_take(&params).await.expect("an answer")), [1]);
}

async fn take_stays_in_its_group(installation: &Installation) {
    let setting = Setting::with_trouble(installation, vec![trouble(5, retry(MINUTE))]).await;
    let other = installation.group(setting.stream, "others").await;
    let params = ExceptionTakeParams { group: other, ..setting.take_params(MINUTE, 10) };
    assert!(installation.backend.exception_take(&params).await.expect("an answer").is_empty());
    assert_eq!(ids(&setting.take(MINUTE, 10).await.1), [5]);
}

async fn take_gives_every_message_to_one_of_eight_processes(installation: &Installation) {
    let exceptions = (1..=20).map(|id| trouble(id, retry(MINUTE))).collect();
    let setting = Setting::with_trouble(installation, exceptions).await;
    let mut processes = tokio::task::JoinSet::new();
    for limit in [1, 2, 3, 1, 2, 3, 1, 2] {
        let backend = installation.another().await;
        let params =
            ExceptionTakeParams { presence: installation.presence().await, ..setting.take_params(MINUTE, limit) };
        processes.spawn(async move {
            let (mut taken, mut misses) = (Vec::new(), 0);
            // A row that another process has just locked is skipped.
            while misses < 5 && taken.len() <= 20 {
                let params = ExceptionTakeParams { token: LeaseToken::mint(), ..params.clone() };
                let rows = backend.exception_take(&params).await.expect("an answer");
                misses += usize::from(rows.is_empty());
                taken.extend(ids(&rows));
            }
            taken
        });
    }
    let mut taken: Vec<i64> = processes.join_all().await.into_iter().flatten().collect();
    taken.sort_unstable();
    assert_eq!(taken, (1..=20).collect::<Vec<i64>>());
}

async fn settle_counts_what_happened(installation: &Installation) {
    let exceptions = (1..=5).map(|id| trouble(id, retry(MINUTE))).collect();
    let setting = Setting::with_trouble(installation, exceptions).await;
    let (token, taken) = setting.take(MINUTE, 10).await;
    assert_eq!(taken.len(), 5);
    let outcomes = vec![
        trouble(1, ExceptionNext::Done),
        trouble(2, retry(MINUTE)),
        trouble(3, later(MINUTE)),
        trouble(4, dead()),
        trouble(5, ExceptionNext::Return),
    ];
    assert_eq!(setting.settle(token, outcomes).await, [1, 2, 3, 4, 5]);
    let expected = ["2 ready 2/2/0/0", "3 ready 2/1/1/0", "4 dead 2/2/0/0", "5 ready 1/1/0/0"];
    assert_eq!(setting.troubles().await, expected);
    let queue = installation.table_of("exception_queue", setting.stream);
    let errors = installation.texts(&format!("select last_error from {queue} order by message_id")).await;
    assert_eq!(
        errors,
        ["it failed", "it failed", "no use", "it failed"],
        "an outcome without an error keeps the last one"
    );
    let owned = format!("select count(*) from {queue} where token is not null or presence_id is not null");
    assert_eq!(installation.number(&owned).await, 0, "nobody owns what is settled");
    let position = installation.backend.cursor_position(setting.stream, setting.group).await.expect("a position");
    assert_eq!((position.ready, position.inflight, position.dead, position.settled), (3, 0, 1, 1));
}

async fn settle_waits_from_the_time_that_it_is_told(installation: &Installation) {
    let exceptions = vec![trouble(1, retry(MINUTE)), trouble(2, retry(MINUTE)), trouble(3, retry(MINUTE))];
    let setting = Setting::with_trouble(installation, exceptions).await;
    let (token, _) = setting.take(MINUTE, 10).await;
    let outcomes =
        vec![trouble(1, retry(3 * MINUTE)), trouble(2, later(2 * MINUTE)), trouble(3, ExceptionNext::Return)];
    setting.settle(token, outcomes).await;
    let micro = Duration::from_micros(1);
    assert_eq!(ids(&setting.take(Duration::ZERO, 10).await.1), [3], "what is given back is due at once");
    assert_eq!(ids(&setting.take(2 * MINUTE - micro, 10).await.1), NONE);
    assert_eq!(ids(&setting.take(2 * MINUTE, 10).await.1), [2]);
    assert_eq!(ids(&setting.take(3 * MINUTE - micro, 10).await.1), NONE);
    assert_eq!(ids(&setting.take(3 * MINUTE, 10).await.1), [1]);
}

async fn settle_of_what_another_process_took_changes_nothing(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(3)).await;
    let (lost, taken) = setting.take(MINUTE, 10).await;
    assert_eq!(taken.len(), 3);
    installation.expire(setting.presence).await;
    let presence = installation.presence().await;
    let thief = ExceptionTakeParams { presence, suspects: 3, ..setting.take_params(MINUTE, 10) };
    assert_eq!(ids(&installation.backend.exception_take(&thief).await.expect("an answer")), [1, 2, 3]);

    let outcomes = || vec![trouble(1, ExceptionNext::Done), trouble(2, dead()), trouble(3, retry(MINUTE))];
    assert_eq!(setting.settle(lost, outcomes()).await, NONE);
    let expected = ["1 inflight 1/1/0/1", "2 inflight 1/1/0/1", "3 inflight 1/1/0/1"];
    assert_eq!(setting.troubles().await, expected, "the late owner's outcomes don't count");
    assert_eq!(setting.settle(LeaseToken::mint(), vec![trouble(1, ExceptionNext::Done)]).await, NONE);
    assert_eq!(setting.troubles().await, expected);
    assert_eq!(setting.settle(thief.token, outcomes()).await, [1, 2, 3]);
    assert_eq!(setting.troubles().await, ["2 dead 2/2/0/1", "3 ready 2/2/0/1"]);
}

async fn settle_twice_counts_once(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(3)).await;
    let (token, _) = setting.take(MINUTE, 2).await;
    for recorded in [&[1, 2][..], &[]] {
        // The third was never taken.
        let outcomes = vec![trouble(1, ExceptionNext::Done), trouble(2, retry(MINUTE)), trouble(3, dead())];
        assert_eq!(setting.settle(token, outcomes).await, recorded);
        assert_eq!(setting.troubles().await, ["2 ready 2/2/0/0", "3 ready 1/1/0/0"]);
    }
}

async fn return_makes_everything_ready_again_and_counts_nothing(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(4)).await;
    let (token, _) = setting.take(MINUTE, 2).await;
    let (other, _) = setting.take(MINUTE, 1).await;
    let backend = &installation.backend;
    for _ in 0..2 {
        backend.exception_return(setting.stream, setting.group, token).await.expect("a return");
        let expected = ["1 ready 1/1/0/0", "2 ready 1/1/0/0", "3 inflight 1/1/0/0", "4 ready 1/1/0/0"];
        assert_eq!(setting.troubles().await, expected);
    }
    let now = Timestamp(installation.now().await);
    let params = ExceptionTakeParams { now: Some(now), ..setting.take_params(MINUTE, 10) };
    assert_eq!(ids(&backend.exception_take(&params).await.expect("an answer")), [1, 2, 4], "they are due at once");
    backend.exception_return(setting.stream, setting.group, other).await.expect("a return");
    assert_eq!(setting.troubles().await[2], "3 ready 1/1/0/0");
}

async fn return_of_what_was_settled_or_taken_by_others_changes_nothing(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(3)).await;
    let (lost, _) = setting.take(MINUTE, 10).await;
    setting.settle(lost, vec![trouble(1, retry(9 * MINUTE)), trouble(2, dead())]).await;
    installation.expire(setting.presence).await;
    let thief = ExceptionTakeParams { presence: installation.presence().await, ..setting.take_params(MINUTE, 10) };
    assert_eq!(ids(&installation.backend.exception_take(&thief).await.expect("an answer")), [3]);
    installation.backend.exception_return(setting.stream, setting.group, lost).await.expect("a late return");
    assert_eq!(setting.troubles().await, ["1 ready 2/2/0/0", "2 dead 2/2/0/0", "3 inflight 1/1/0/1"]);
    let other = installation.group(setting.stream, "others").await;
    installation.backend.exception_return(setting.stream, other, thief.token).await.expect("another group's return");
    assert_eq!(setting.troubles().await[2], "3 inflight 1/1/0/1");
}

async fn due_says_how_long_until_the_next_message(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let (stream, group) = (setting.stream, setting.group);
    let due = async || installation.backend.exception_due(stream, group).await.expect("an answer");
    assert_eq!(due().await, None, "nothing is in trouble");
    let (token, _) = installation.claim(stream, group, setting.presence, 10).await;
    let exceptions = vec![trouble(1, retry(60 * MINUTE)), trouble(2, later(120 * MINUTE)), trouble(3, dead())];
    let params = SettleParams { exceptions, ..settle_params(stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    let wait = due().await.expect("a message waits");
    assert!((58 * MINUTE..=60 * MINUTE).contains(&wait), "{wait:?}");

    let far = Timestamp(installation.now().await).plus(90 * MINUTE);
    let take = ExceptionTakeParams { now: Some(far), ..setting.take_params(MINUTE, 1) };
    assert_eq!(ids(&installation.backend.exception_take(&take).await.expect("an answer")), [1]);
    let wait = due().await.expect("another message waits");
    assert!((118 * MINUTE..=120 * MINUTE).contains(&wait), "what is being run does not count: {wait:?}");
    installation.backend.exception_return(stream, group, take.token).await.expect("a return");
    assert_eq!(due().await, Some(Duration::ZERO), "what is overdue is due now");
    let other = installation.group(stream, "others").await;
    assert_eq!(installation.backend.exception_due(stream, other).await.expect("an answer"), None);
}
