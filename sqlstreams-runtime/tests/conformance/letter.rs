//! Dead letters: `letter_list`, `letter_count`, `letter_read`, `letter_redrive`, `letter_discard`.

use std::time::Duration;

use sqlstreams_runtime::backend::{
    DeadLetterFilter, DiscardScope, ExceptionNext, ExceptionParams, ExceptionTakeParams, LetterParams, TroubleStatus,
};
use sqlstreams_runtime::identity::MessageId;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::exception::{MINUTE, NOW, Setting, ids, keep_copy_only};
use crate::harness::{self, Installation, PATIENCE, letter_params, on_both, retry, trouble};

on_both! {
    list_gives_pages_by_id,
    list_filters_by_error_version_and_time_of_death,
    list_takes_signs_of_patterns_as_they_are,
    list_tells_the_history_of_a_letter,
    count_is_by_error_and_version_the_most_frequent_first,
    count_says_whose_payload_is_still_there,
    read_gives_the_message_from_the_log_or_its_copy_whatever_its_status,
    redrive_makes_letters_ready_and_keeps_their_history,
    redrive_gives_all_retries_again_and_a_second_death_counts_on,
    redrive_leaves_letters_dead_whose_payload_is_gone,
    redrive_changes_a_page_of_what_the_filter_finds,
    redrive_spreads_the_due_times,
    redrive_of_letters_that_are_not_dead_changes_nothing,
    redrive_from_eight_processes_redrives_each_letter_once,
    discard_removes_dead_letters_and_nothing_else,
    discard_removes_what_waits_or_runs_when_asked_to,
    discard_of_a_message_that_runs_leaves_the_late_owner_nothing_to_settle,
    discard_leaves_a_row_that_holds_later_messages_of_its_key,
}

fn dead(id: i64, error: &str) -> ExceptionParams {
    trouble(id, ExceptionNext::Dead { error: error.to_owned() })
}

fn page(setting: &Setting<'_>, filter: DeadLetterFilter) -> LetterParams {
    LetterParams { filter, ..letter_params(setting.stream, setting.group) }
}

async fn listed(setting: &Setting<'_>, params: &LetterParams) -> Vec<i64> {
    let letters = setting.installation.backend.letter_list(params).await.expect("an answer");
    letters.iter().map(|letter| letter.id.0).collect()
}

async fn found(setting: &Setting<'_>, filter: DeadLetterFilter) -> Vec<i64> {
    listed(setting, &page(setting, filter)).await
}

/// (found, changed, last) of a redrive at `NOW` plus two minutes.
async fn redrive(setting: &Setting<'_>, params: &LetterParams, spread: Duration) -> (i64, i64, Option<i64>) {
    let batch = setting.installation.backend.letter_redrive(params, spread, Some(NOW.plus(2 * MINUTE))).await;
    let batch = batch.expect("an answer");
    (batch.found, batch.changed, batch.last.map(|id| id.0))
}

async fn discard(setting: &Setting<'_>, params: &LetterParams, scope: DiscardScope) -> (i64, i64, Option<i64>) {
    let batch = setting.installation.backend.letter_discard(params, scope).await.expect("an answer");
    (batch.found, batch.changed, batch.last.map(|id| id.0))
}

async fn list_gives_pages_by_id(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let all = page(&setting, DeadLetterFilter::all());
    assert!(listed(&setting, &all).await.is_empty());
    let exceptions = [9, 2, 7, 4, 3].map(|id| ExceptionParams {
        schema_version: 2,
        message_key: (id == 4).then(|| "key".to_owned()),
        ..dead(id, &format!("reason {id}"))
    });
    let mut exceptions = exceptions.to_vec();
    exceptions.push(trouble(5, retry(MINUTE)));
    setting.trouble(exceptions).await;
    let (mut seen, mut after) = (Vec::new(), MessageId(0));
    loop {
        let params = LetterParams { after, limit: 2, ..all.clone() };
        let page = installation.backend.letter_list(&params).await.expect("an answer");
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = last.id;
        seen.extend(page);
    }
    assert_eq!(seen.iter().map(|letter| letter.id.0).collect::<Vec<_>>(), [2, 3, 4, 7, 9]);
    for letter in &seen {
        assert_eq!((letter.schema_version, letter.attempts), (2, 1));
        assert_eq!(letter.error, format!("reason {}", letter.id));
        assert_eq!(letter.message_key.as_deref(), (letter.id.0 == 4).then_some("key"));
    }
    assert_eq!(listed(&setting, &LetterParams { after: MessageId(4), ..all.clone() }).await, [7, 9]);
    assert_eq!(listed(&setting, &LetterParams { last: MessageId(7), ..all.clone() }).await, [2, 3, 4, 7]);
    let group = installation.group(setting.stream, "others").await;
    assert!(listed(&setting, &LetterParams { group, ..all }).await.is_empty());
}

async fn list_filters_by_error_version_and_time_of_death(installation: &Installation) {
    let versioned = ExceptionParams { schema_version: 2, ..dead(3, "mail: timeout") };
    let exceptions = vec![dead(1, "mail: timeout"), dead(2, "db: timeout"), versioned, dead(4, "mail: refused")];
    let setting = Setting::with_trouble(installation, exceptions).await;
    let queue = installation.table_of("exception_queue", setting.stream);
    let later = if installation.is_postgres() { "died_at + interval '1 minute'" } else { "died_at + 60000000" };
    installation.execute(&format!("update {queue} set died_at = {later} where message_id >= 3")).await;
    let all = DeadLetterFilter::all;
    assert_eq!(found(&setting, all()).await, [1, 2, 3, 4]);
    assert_eq!(found(&setting, all().error_contains("timeout")).await, [1, 2, 3]);
    assert_eq!(found(&setting, all().error_contains("Timeout")).await, [0; 0], "the case counts");
    assert_eq!(found(&setting, all().error_starts_with("mail")).await, [1, 3, 4]);
    assert_eq!(found(&setting, all().error_starts_with("timeout")).await, [0; 0]);
    assert_eq!(found(&setting, all().error_starts_with("mail").error_contains("time")).await, [1, 3]);
    assert_eq!(found(&setting, all().version(2)).await, [3]);
    assert_eq!(found(&setting, all().version(1).error_contains("refused")).await, [4]);
    let minute = NOW.plus(MINUTE);
    assert_eq!(found(&setting, all().died_since(minute)).await, [3, 4], "the bound is included");
    assert_eq!(found(&setting, all().died_since(minute.plus(Duration::from_micros(1)))).await, [0; 0]);
    assert_eq!(found(&setting, all().died_until(minute)).await, [1, 2], "the bound is not included");
    assert_eq!(found(&setting, all().died_since(NOW).died_until(minute)).await, [1, 2]);
}

async fn list_takes_signs_of_patterns_as_they_are(installation: &Installation) {
    let exceptions = vec![dead(1, "100% full"), dead(2, "1000 full"), dead(3, "a_b*?[c]'\""), dead(4, "ähnlich\\")];
    let setting = Setting::with_trouble(installation, exceptions).await;
    let all = DeadLetterFilter::all;
    assert_eq!(found(&setting, all().error_contains("0%")).await, [1]);
    assert_eq!(found(&setting, all().error_contains("a_b*?[c]'\"")).await, [3]);
    assert_eq!(found(&setting, all().error_contains("aXb")).await, [0; 0]);
    assert_eq!(found(&setting, all().error_starts_with("ähn")).await, [4]);
    assert_eq!(found(&setting, all().error_contains("\\")).await, [4]);
    assert_eq!(found(&setting, all().error_contains("").error_starts_with("")).await, [1, 2, 3, 4]);
}

async fn list_tells_the_history_of_a_letter(installation: &Installation) {
    let setting = Setting::with_trouble(installation, vec![trouble(1, retry(MINUTE))]).await;
    let (token, _) = setting.take(MINUTE, 10).await;
    setting.settle(token, vec![trouble(1, ExceptionNext::Later { after: MINUTE })]).await;
    let (token, _) = setting.take(MINUTE, 10).await;
    setting.settle(token, vec![dead(1, "no use")]).await;
    let params = page(&setting, DeadLetterFilter::all());
    let letter = &installation.backend.letter_list(&params).await.expect("an answer")[0];
    assert_eq!((letter.attempts, letter.failures, letter.delays, letter.kills, letter.redrives), (3, 2, 1, 0, 0));
    assert_eq!((letter.first_failed_at, letter.died_at), (Some(NOW), Some(NOW)));
    assert_eq!(letter.error, "no use");
}

async fn count_is_by_error_and_version_the_most_frequent_first(installation: &Installation) {
    let other = |id| ExceptionParams { schema_version: 2, ..dead(id, "a") };
    let exceptions = vec![dead(1, "b"), dead(2, "a"), other(3), dead(4, "b"), dead(5, "b"), other(6), dead(7, "c")];
    let setting = Setting::with_trouble(installation, exceptions).await;
    let count = async |filter, limit| {
        let params = LetterParams { limit, ..page(&setting, filter) };
        installation.backend.letter_count(&params, false).await.expect("an answer")
    };
    let counts = count(DeadLetterFilter::all(), 10).await;
    let seen = counts.groups.iter().map(|group| {
        assert_eq!((group.first_died_at, group.last_died_at, group.stored), (NOW, NOW, 0));
        (group.error.as_str(), group.schema_version, group.messages, group.oldest.0, group.newest.0)
    });
    let expected = [("b", 1, 3, 1, 5), ("a", 2, 2, 3, 6), ("a", 1, 1, 2, 2), ("c", 1, 1, 7, 7)];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    assert_eq!((counts.messages, counts.stored), (7, 0));
    let first = count(DeadLetterFilter::all(), 1).await;
    assert_eq!((first.groups.len(), first.messages), (1, 7), "the totals are those of all");
    let some = count(DeadLetterFilter::all().error_contains("a"), 10).await;
    assert_eq!((some.groups.len(), some.messages), (2, 3));
    assert_eq!(count(DeadLetterFilter::all().error_contains("x"), 10).await, Default::default());
}

async fn count_says_whose_payload_is_still_there(installation: &Installation) {
    let exceptions = (1..=4).map(|id| dead(id, if id == 4 { "b" } else { "a" })).collect();
    let setting = Setting::with_trouble(installation, exceptions).await;
    keep_copy_only(installation, setting.stream, 1).await;
    let log = installation.table_of("message_log", setting.stream);
    installation.execute(&format!("delete from {log} where id in (2, 4)")).await;
    let params = page(&setting, DeadLetterFilter::all());
    let counts = installation.backend.letter_count(&params, true).await.expect("an answer");
    let stored: Vec<_> = counts.groups.iter().map(|group| (group.messages, group.stored)).collect();
    assert_eq!((stored, counts.messages, counts.stored), (vec![(3, 2), (1, 0)], 4, 2));
}

async fn read_gives_the_message_from_the_log_or_its_copy_whatever_its_status(installation: &Installation) {
    let exceptions =
        vec![dead(1, "a"), dead(2, "a"), trouble(3, retry(MINUTE)), dead(4, "a"), trouble(5, retry(MINUTE))];
    let setting = Setting::with_trouble(installation, exceptions).await;
    let stored = installation.read(setting.stream, 0, 2).await;
    keep_copy_only(installation, setting.stream, 2).await;
    let log = installation.table_of("message_log", setting.stream);
    installation.execute(&format!("delete from {log} where id = 4")).await;
    assert_eq!(ids(&setting.take(MINUTE, 1).await.1).len(), 1);
    let read = async |id| {
        let row = installation.backend.letter_read(setting.stream, setting.group, MessageId(id)).await;
        row.expect("an answer")
    };
    for id in [1, 2] {
        let row = read(id).await.expect("it is in trouble");
        let (message, stored) = (row.message.expect("it is stored"), &stored[usize::try_from(id).expect("small") - 1]);
        assert_eq!((row.letter.id, row.status, message.id), (MessageId(id), TroubleStatus::Dead, stored.id));
        assert_eq!((message.payload, message.created_at), (stored.payload.clone(), stored.created_at));
        assert_eq!((row.letter.error.as_str(), row.letter.died_at), ("a", Some(NOW)));
    }
    let gone = read(4).await.expect("it is in trouble");
    assert!(gone.message.is_none() && gone.status == TroubleStatus::Dead);
    let open = [read(3).await, read(5).await].map(|row| row.expect("it is in trouble"));
    let due = TroubleStatus::Waiting { due: NOW.plus(MINUTE) };
    let statuses = [open[0].status, open[1].status];
    assert!(statuses.contains(&due) && statuses.contains(&TroubleStatus::Running), "{statuses:?}");
    assert!(open.iter().all(|row| row.letter.died_at.is_none() && row.message.is_some()));
    assert!(read(6).await.is_none() && read(99).await.is_none(), "not in trouble");
    let other = installation.group(setting.stream, "others").await;
    let row = installation.backend.letter_read(setting.stream, other, MessageId(1)).await.expect("an answer");
    assert!(row.is_none());
    let text = format!("{open:?}");
    assert!(text.contains("payload: <8 bytes>") && !text.contains("\\\"n"), "no payload is shown: {text}");
}

async fn redrive_makes_letters_ready_and_keeps_their_history(installation: &Installation) {
    let setting = Setting::with_trouble(installation, vec![trouble(1, retry(MINUTE)), dead(2, "b")]).await;
    let (token, _) = setting.take(MINUTE, 10).await;
    setting.settle(token, vec![dead(1, "no use")]).await;
    let queue = installation.table_of("exception_queue", setting.stream);
    installation.execute(&format!("update {queue} set kills = 2 where message_id = 1")).await;
    let one = LetterParams { last: MessageId(1), ..page(&setting, DeadLetterFilter::all()) };
    assert_eq!(redrive(&setting, &one, Duration::ZERO).await, (1, 1, Some(1)));
    assert_eq!(setting.troubles().await, ["1 ready 2/0/0/0", "2 dead 1/1/0/0"], "attempts stay, strikes begin anew");
    let row = installation.backend.letter_read(setting.stream, setting.group, MessageId(1)).await;
    let row = row.expect("an answer").expect("it is in trouble");
    let letter = &row.letter;
    assert_eq!((letter.failures, letter.redrives, letter.kills), (2, 1, 0));
    assert_eq!((letter.first_failed_at, letter.died_at, letter.error.as_str()), (Some(NOW), None, "no use"));
    assert_eq!(row.status, TroubleStatus::Waiting { due: NOW.plus(2 * MINUTE) });
    assert_eq!(ids(&setting.take(2 * MINUTE - Duration::from_micros(1), 10).await.1), [0; 0]);
    let taken = setting.take(2 * MINUTE, 10).await.1;
    assert_eq!((taken.len(), taken[0].id.0, taken[0].attempts, taken[0].failures), (1, 1, 2, 0));
    assert!(taken[0].message.is_some());
}

async fn redrive_gives_all_retries_again_and_a_second_death_counts_on(installation: &Installation) {
    let setting = Setting::with_trouble(installation, vec![dead(1, "first")]).await;
    let params = page(&setting, DeadLetterFilter::all());
    for redrives in 1..=2 {
        assert_eq!(redrive(&setting, &params, Duration::ZERO).await, (1, 1, Some(1)));
        for failures in 0..2 {
            let (token, taken) = setting.take(10 * MINUTE, 10).await;
            assert_eq!(taken[0].failures, failures, "redrive {redrives}");
            let next = if failures == 0 { retry(MINUTE) } else { ExceptionNext::Dead { error: "again".to_owned() } };
            setting.settle(token, vec![trouble(1, next)]).await;
        }
        let letter = &installation.backend.letter_list(&params).await.expect("an answer")[0];
        assert_eq!((letter.redrives, letter.attempts, letter.failures), (redrives, 1 + 2 * redrives, 1 + 2 * redrives));
        assert_eq!((letter.error.as_str(), letter.died_at), ("again", Some(NOW)));
    }
}

async fn redrive_leaves_letters_dead_whose_payload_is_gone(installation: &Installation) {
    let setting = Setting::with_trouble(installation, (1..=3).map(|id| dead(id, "a")).collect()).await;
    keep_copy_only(installation, setting.stream, 2).await;
    let log = installation.table_of("message_log", setting.stream);
    installation.execute(&format!("delete from {log} where id = 3")).await;
    let params = page(&setting, DeadLetterFilter::all());
    assert_eq!(redrive(&setting, &params, Duration::ZERO).await, (3, 2, Some(3)));
    assert_eq!(setting.troubles().await, ["1 ready 1/0/0/0", "2 ready 1/0/0/0", "3 dead 1/1/0/0"]);
    let taken = setting.take(2 * MINUTE, 10).await.1;
    assert!(ids(&taken) == [1, 2] && taken.iter().all(|row| row.message.is_some()));
}

async fn redrive_changes_a_page_of_what_the_filter_finds(installation: &Installation) {
    let exceptions = (1..=7).map(|id| dead(id, if id % 2 == 0 { "even" } else { "odd" })).collect();
    let setting = Setting::with_trouble(installation, exceptions).await;
    let mut params = LetterParams { limit: 2, ..page(&setting, DeadLetterFilter::all().error_starts_with("odd")) };
    assert_eq!(redrive(&setting, &params, Duration::ZERO).await, (2, 2, Some(3)));
    params.after = MessageId(3);
    assert_eq!(redrive(&setting, &params, Duration::ZERO).await, (2, 2, Some(7)));
    params.after = MessageId(7);
    assert_eq!(redrive(&setting, &params, Duration::ZERO).await, (0, 0, None));
    assert_eq!(found(&setting, DeadLetterFilter::all()).await, [2, 4, 6]);
}

async fn redrive_spreads_the_due_times(installation: &Installation) {
    let setting = Setting::with_trouble(installation, (1..=20).map(|id| dead(id, "a")).collect()).await;
    let params = page(&setting, DeadLetterFilter::all());
    assert_eq!(redrive(&setting, &params, 60 * MINUTE).await.1, 20);
    let mut due = Vec::new();
    for id in 1..=20 {
        let row = installation.backend.letter_read(setting.stream, setting.group, MessageId(id)).await;
        match row.expect("an answer").expect("it is in trouble").status {
            TroubleStatus::Waiting { due: at } => due.push(at),
            other => panic!("{other:?}"),
        }
    }
    let (from, until) = (NOW.plus(2 * MINUTE), NOW.plus(62 * MINUTE));
    assert!(due.iter().all(|at| (from..until).contains(at)), "{due:?}");
    due.sort_unstable();
    due.dedup();
    assert!(due.len() > 15 && due[due.len() - 1].0 - due[0].0 > 10 * 60 * 1_000_000, "spread: {due:?}");
}

async fn redrive_of_letters_that_are_not_dead_changes_nothing(installation: &Installation) {
    let exceptions = vec![trouble(1, retry(MINUTE)), trouble(2, retry(2 * MINUTE))];
    let setting = Setting::with_trouble(installation, exceptions).await;
    assert_eq!(ids(&setting.take(MINUTE, 1).await.1), [1]);
    let params = page(&setting, DeadLetterFilter::all());
    assert_eq!(redrive(&setting, &params, Duration::ZERO).await, (0, 0, None));
    assert_eq!(setting.troubles().await, ["1 inflight 1/1/0/0", "2 ready 1/1/0/0"]);
}

async fn redrive_from_eight_processes_redrives_each_letter_once(installation: &Installation) {
    let setting = Setting::with_trouble(installation, (1..=20).map(|id| dead(id, "a")).collect()).await;
    let start = std::sync::Arc::new(tokio::sync::Barrier::new(8));
    let mut processes = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (backend, start) = (installation.another().await, start.clone());
        let mut params = LetterParams { limit: 3, ..page(&setting, DeadLetterFilter::all()) };
        processes.spawn(async move {
            start.wait().await;
            let mut changed = 0;
            loop {
                let batch = backend.letter_redrive(&params, Duration::ZERO, Some(NOW)).await.expect("an answer");
                changed += batch.changed;
                let Some(last) = batch.last else { return changed };
                params.after = last;
            }
        });
    }
    let changed: i64 = processes.join_all().await.into_iter().sum();
    assert_eq!(changed, 20);
    let expected: Vec<_> = (1..=20).map(|id| format!("{id} ready 1/0/0/0")).collect();
    assert_eq!(setting.troubles().await, expected);
}

async fn discard_removes_dead_letters_and_nothing_else(installation: &Installation) {
    let exceptions =
        vec![dead(1, "a"), dead(2, "b"), trouble(3, retry(MINUTE)), dead(4, "a"), trouble(5, retry(MINUTE))];
    let setting = Setting::with_trouble(installation, exceptions).await;
    assert_eq!(setting.take(MINUTE, 1).await.1.len(), 1);
    let some = page(&setting, DeadLetterFilter::all().error_contains("a"));
    let one = LetterParams { limit: 1, ..some.clone() };
    assert_eq!(discard(&setting, &one, DiscardScope::Dead).await, (1, 1, Some(1)));
    assert_eq!(discard(&setting, &some, DiscardScope::Dead).await, (1, 1, Some(4)));
    assert_eq!(found(&setting, DeadLetterFilter::all()).await, [2]);
    assert_eq!(setting.troubles().await.len(), 3);
    let log = installation.table_of("message_log", setting.stream);
    assert_eq!(installation.count(&log).await, 40, "the stream keeps its messages");
}

async fn discard_removes_what_waits_or_runs_when_asked_to(installation: &Installation) {
    let exceptions = vec![dead(1, "a"), trouble(2, retry(MINUTE)), trouble(3, retry(2 * MINUTE))];
    let setting = Setting::with_trouble(installation, exceptions).await;
    assert_eq!(ids(&setting.take(MINUTE, 1).await.1), [2]);
    let all = page(&setting, DeadLetterFilter::all());
    assert_eq!(discard(&setting, &all, DiscardScope::Waiting).await, (2, 2, Some(3)));
    assert_eq!(setting.troubles().await, ["2 inflight 1/1/0/0"]);
    let failed = page(&setting, DeadLetterFilter::all().error_contains("it failed"));
    assert_eq!(discard(&setting, &failed, DiscardScope::Running).await, (1, 1, Some(2)));
    let position = installation.backend.cursor_position(setting.stream, setting.group).await.expect("a position");
    assert_eq!((position.ready, position.inflight, position.dead, position.settled), (0, 0, 0, position.claimed));
}

async fn discard_of_a_message_that_runs_leaves_the_late_owner_nothing_to_settle(installation: &Installation) {
    let setting = Setting::with_trouble(installation, (1..=3).map(|id| trouble(id, retry(MINUTE))).collect()).await;
    let (token, taken) = setting.take(MINUTE, 10).await;
    assert_eq!(ids(&taken), [1, 2, 3]);
    let all = page(&setting, DeadLetterFilter::all());
    assert_eq!(discard(&setting, &all, DiscardScope::Running).await, (3, 3, Some(3)));
    setting.settle(token, vec![trouble(1, ExceptionNext::Done), trouble(2, retry(MINUTE)), dead(3, "late")]).await;
    installation.backend.exception_return(setting.stream, setting.group, token).await.expect("a late return");
    assert!(setting.troubles().await.is_empty());
    let look = ExceptionTakeParams { suspects: 10, ..setting.take_params(9 * MINUTE, 10) };
    assert!(installation.backend.exception_take(&look).await.expect("an answer").is_empty());
}

async fn discard_leaves_a_row_that_holds_later_messages_of_its_key(installation: &Installation) {
    let keyed = |id| ExceptionParams { message_key: Some("k".to_owned()), ..trouble(id, retry(MINUTE)) };
    let setting = Setting::with_trouble(installation, vec![keyed(1), trouble(2, retry(MINUTE))]).await;
    let queue = installation.table_of("exception_queue", setting.stream);
    installation.execute(&format!("update {queue} set held_to = 9 where message_id = 1")).await;
    let all = page(&setting, DeadLetterFilter::all());
    assert_eq!(discard(&setting, &all, DiscardScope::Running).await, (1, 1, Some(2)));
    assert_eq!(setting.troubles().await, ["1 ready 1/1/0/0"]);
}

/// What retention drops while a redrive waits for it is not redriven: the redrive's statement begins after the gate.
#[tokio::test]
async fn redrive_waits_for_retention_and_sees_what_it_dropped() {
    let installation = harness::postgres().await;
    let setting = Setting::with_trouble(&installation, vec![dead(1, "a"), dead(2, "a")]).await;
    let mut retention = PgConnection::connect(installation.database().url()).await.expect("a connection");
    let mut tx = retention.begin().await.expect("a transaction");
    let lock = format!("select 1 from sqlstreams.consumer_group_config where id = {} for update", setting.group);
    tx.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await.expect("the gate");
    let backend = installation.backend.clone();
    let params = page(&setting, DeadLetterFilter::all());
    let redriving = tokio::spawn(async move { backend.letter_redrive(&params, Duration::ZERO, None).await });
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let deadline = std::time::Instant::now() + PATIENCE;
    while installation.number(waits).await == 0 {
        assert!(std::time::Instant::now() < deadline && !redriving.is_finished(), "the redrive does not wait");
    }
    let log = installation.table_of("message_log", setting.stream);
    tx.execute(sqlx::raw_sql(AssertSqlSafe(format!("delete from {log} where id = 1")))).await.expect("it is dropped");
    tx.commit().await.expect("a commit");
    let batch = redriving.await.expect("no panic").expect("an answer");
    assert_eq!((batch.found, batch.changed), (2, 1));
    assert_eq!(setting.troubles().await, ["1 dead 1/1/0/0", "2 ready 1/0/0/0"]);
}
