//! Who runs the maintenance: `worker_declare`, `worker_look`, `worker_take`, `worker_list`, `worker_target`.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::Timestamp;
use sqlstreams_runtime::backend::{Backend, WorkerLookParams, WorkerLookRow, WorkerNames, WorkerRow};
use sqlstreams_runtime::identity::{PresenceId, WorkerId, WorkerToken};
use tokio::sync::Barrier;

use crate::harness::{Installation, LONG, on_both, presence_params};

on_both! {
    declare_gives_each_stream_and_group_its_workers_once,
    look_offers_nothing_to_do_where_all_runs_well,
    look_says_that_workers_are_not_declared,
    look_offers_again_what_the_process_took_and_does_not_know_of,
    take_gives_a_worker_to_one_of_two_processes,
    take_of_many_at_once_gives_each_worker_once,
    take_follows_when_the_owner_is_gone_and_the_late_one_learns_it,
    list_tells_what_runs,
    target_suspends_a_worker_over_restarts_and_resumes_it,
    target_of_two_runs_a_worker_in_two_processes,
}

const NAMES: WorkerNames = WorkerNames { of_streams: &["sweeper", "mover"], of_groups: &["advancer"] };

async fn look(backend: &dyn Backend, owner: PresenceId, held: &[WorkerToken]) -> WorkerLookRow {
    look_at(backend, owner, held, None).await
}

async fn look_at(
    backend: &dyn Backend,
    owner: PresenceId,
    held: &[WorkerToken],
    now: Option<Timestamp>,
) -> WorkerLookRow {
    let params = WorkerLookParams { owner, held: held.to_vec(), names: NAMES, now };
    backend.worker_look(&params).await.expect("a look")
}

async fn take(
    backend: &dyn Backend,
    owner: PresenceId,
    free: &[WorkerRow],
    now: Option<Timestamp>,
) -> Vec<WorkerToken> {
    let wanted: Vec<_> = free.iter().map(|worker| (worker.id, WorkerToken::mint())).collect();
    backend.worker_take(owner, &wanted, now).await.expect("an answer")
}

/// A stream with a group, and their workers.
async fn declared(installation: &Installation) -> Vec<WorkerId> {
    let stream = installation.stream("events").await;
    installation.group(stream, "readers").await;
    installation.backend.worker_declare(NAMES).await.expect("workers can be declared");
    installation.backend.worker_list(None).await.expect("a list").into_iter().map(|worker| worker.id).collect()
}

async fn declare_gives_each_stream_and_group_its_workers_once(installation: &Installation) {
    let stream = installation.stream("events").await;
    installation.stream("others").await;
    let group = installation.group(stream, "readers").await;
    for _ in 0..3 {
        installation.backend.worker_declare(NAMES).await.expect("workers can be declared");
    }
    let mut all: Vec<_> = installation.backend.worker_list(None).await.expect("a list");
    all.sort_by_key(|worker| (worker.stream.clone(), worker.name.clone()));
    let all: Vec<_> = all.iter().map(|w| (w.stream.as_deref(), w.group.as_deref(), &*w.name, w.target)).collect();
    let (events, others) = (Some("events"), Some("others"));
    let expected = [
        (events, Some("readers"), "advancer", 1),
        (events, None, "mover", 1),
        (events, None, "sweeper", 1),
        (others, None, "mover", 1),
        (others, None, "sweeper", 1),
    ];
    assert_eq!(all, expected);
    let owner = installation.presence().await;
    let free = look(&*installation.backend, owner, &[]).await.free;
    let of_group: Vec<_> = free.iter().filter(|worker| worker.group == Some(group)).collect();
    assert!(of_group.len() == 1 && of_group[0].stream == stream, "{free:?}");
    assert_eq!(free.len(), 5);
}

async fn look_offers_nothing_to_do_where_all_runs_well(installation: &Installation) {
    declared(installation).await;
    let owner = installation.presence().await;
    let free = look(&*installation.backend, owner, &[]).await.free;
    let held = take(&*installation.backend, owner, &free, None).await;
    assert_eq!(held.len(), 3);
    assert_eq!(look(&*installation.backend, owner, &held).await, WorkerLookRow::default());
    let other = installation.presence().await;
    assert_eq!(look(&*installation.another().await, other, &[]).await, WorkerLookRow::default());
    // Workers that this build does not know are nothing to it.
    let names = WorkerNames { of_streams: &["sweeper"], of_groups: &[] };
    let params = WorkerLookParams { owner: other, held: Vec::new(), names, now: None };
    assert_eq!(installation.backend.worker_look(&params).await.expect("a look"), WorkerLookRow::default());
}

async fn look_says_that_workers_are_not_declared(installation: &Installation) {
    let owner = installation.presence().await;
    assert!(!look(&*installation.backend, owner, &[]).await.undeclared, "there is no stream");
    let stream = installation.stream("events").await;
    for _ in 0..2 {
        assert!(look(&*installation.backend, owner, &[]).await.undeclared);
        installation.backend.worker_declare(NAMES).await.expect("workers can be declared");
        assert!(!look(&*installation.backend, owner, &[]).await.undeclared);
        installation.group(stream, "readers").await;
    }
}

async fn look_offers_again_what_the_process_took_and_does_not_know_of(installation: &Installation) {
    declared(installation).await;
    let owner = installation.presence().await;
    let free = look(&*installation.backend, owner, &[]).await.free;
    let lost = take(&*installation.backend, owner, &free, None).await;
    let again = look(&*installation.backend, owner, &[]).await.free;
    assert_eq!(again, free, "the answer was lost");
    let held = take(&*installation.backend, owner, &again, None).await;
    assert_eq!(look(&*installation.backend, owner, &held).await, WorkerLookRow::default());
    assert_eq!(look(&*installation.backend, owner, &lost).await.lost.len(), 3);
}

async fn take_gives_a_worker_to_one_of_two_processes(installation: &Installation) {
    declared(installation).await;
    let other = installation.another().await;
    let (one, two) = (installation.presence().await, installation.presence().await);
    // Both look before one takes.
    let free = look(&*installation.backend, one, &[]).await.free;
    assert_eq!(look(&*other, two, &[]).await.free, free);
    assert_eq!(take(&*installation.backend, one, &free, None).await.len(), 3);
    assert!(take(&*other, two, &free, None).await.is_empty());
}

async fn take_of_many_at_once_gives_each_worker_once(installation: &Installation) {
    const PROCESSES: usize = 4;
    for stream in 0..10 {
        installation.stream(&format!("stream-{stream}")).await;
    }
    installation.backend.worker_declare(NAMES).await.expect("workers can be declared");
    let barrier = Arc::new(Barrier::new(PROCESSES));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..PROCESSES {
        let (backend, barrier) = (installation.another().await, Arc::clone(&barrier));
        let presence = presence_params(LONG);
        backend.presence_enter(&presence).await.expect("a presence");
        tasks.spawn(async move {
            let free = look(&*backend, presence.id, &[]).await.free;
            barrier.wait().await;
            take(&*backend, presence.id, &free, None).await.len()
        });
    }
    let taken = tasks.join_all().await;
    assert_eq!(taken.iter().sum::<usize>(), 20, "{taken:?}");
}

async fn take_follows_when_the_owner_is_gone_and_the_late_one_learns_it(installation: &Installation) {
    declared(installation).await;
    let backend = &*installation.backend;
    let (killed, heir) = (presence_params(Duration::from_secs(30)), installation.presence().await);
    backend.presence_enter(&killed).await.expect("a presence");
    let free = look(backend, killed.id, &[]).await.free;
    let held = take(backend, killed.id, &free, None).await;
    let soon = Some(Timestamp(installation.now().await).plus(Duration::from_secs(10)));
    assert!(look_at(backend, heir, &[], soon).await.free.is_empty(), "the owner lives");
    assert!(take(backend, heir, &free, soon).await.is_empty(), "the owner lives");
    let later = Some(Timestamp(installation.now().await).plus(Duration::from_secs(60)));
    assert_eq!(look_at(backend, heir, &[], later).await.free, free);
    assert_eq!(take(backend, heir, &free, later).await.len(), 3);
    let mut lost = look(backend, killed.id, &held).await.lost;
    lost.sort_unstable();
    let mut all = held;
    all.sort_unstable();
    assert_eq!(lost, all, "the first owner stops when it comes back");

    // Whoever leaves makes way at once.
    backend.presence_leave(heir).await.expect("a process can leave");
    assert_eq!(look(backend, killed.id, &[]).await.free.len(), 3);
}

async fn list_tells_what_runs(installation: &Installation) {
    let ids = declared(installation).await;
    let owner = installation.presence().await;
    let free = look(&*installation.backend, owner, &[]).await.free;
    take(&*installation.backend, owner, &free[..1], None).await;
    let running = async || {
        let list = installation.backend.worker_list(None).await.expect("a list");
        assert_eq!(list.iter().map(|worker| worker.id).collect::<Vec<_>>(), ids);
        list.iter().filter(|worker| worker.running == 1).map(|worker| worker.id).collect::<Vec<_>>()
    };
    assert_eq!(running().await, [free[0].id]);
    installation.expire(owner).await;
    assert!(running().await.is_empty());
}

async fn target_suspends_a_worker_over_restarts_and_resumes_it(installation: &Installation) {
    let ids = declared(installation).await;
    let backend = &*installation.backend;
    let owner = installation.presence().await;
    let free = look(backend, owner, &[]).await.free;
    let held = take(backend, owner, &free, None).await;
    assert!(backend.worker_target(ids[0], 0).await.expect("an answer"));
    assert!(!backend.worker_target(WorkerId(77), 0).await.expect("an answer"), "there is none");
    assert_eq!(look(backend, owner, &held).await.lost.len(), 1, "its owner stops it");

    // A restart declares everything again.
    let restarted = installation.another().await;
    restarted.worker_declare(NAMES).await.expect("workers can be declared");
    backend.presence_leave(owner).await.expect("a process can leave");
    let next = installation.presence().await;
    let free = look(&*restarted, next, &[]).await.free;
    assert!(free.len() == 2 && free.iter().all(|worker| worker.id != ids[0]), "{free:?}");
    assert!(backend.worker_target(ids[0], 1).await.expect("an answer"));
    assert_eq!(look(&*restarted, next, &[]).await.free.len(), 3);
}

async fn target_of_two_runs_a_worker_in_two_processes(installation: &Installation) {
    let ids = declared(installation).await;
    let backend = &*installation.backend;
    backend.worker_target(ids[0], 2).await.expect("an answer");
    let mut taken = Vec::new();
    for _ in 0..3 {
        let owner = installation.presence().await;
        let free = look(backend, owner, &[]).await.free;
        let free: Vec<_> = free.into_iter().filter(|worker| worker.id == ids[0]).collect();
        let held = take(backend, owner, &free, None).await;
        assert!(look(backend, owner, &held).await.free.iter().all(|worker| worker.id != ids[0]), "once a process");
        taken.push((owner, held));
    }
    assert_eq!(taken.iter().map(|(_, held)| held.len()).collect::<Vec<_>>(), [1, 1, 0]);
    backend.worker_target(ids[0], 1).await.expect("an answer");
    let lost = taken.iter().map(|(_, held)| held.len());
    let mut given_up = 0;
    for ((owner, held), _) in taken.iter().zip(lost) {
        given_up += look(backend, *owner, held).await.lost.len();
    }
    assert_eq!(given_up, 1, "one of them stops");
    backend.worker_target(ids[0], -1).await.expect("an answer");
    let owner = installation.presence().await;
    assert!(look(backend, owner, &[]).await.free.iter().any(|worker| worker.id == ids[0]), "every process may");
}
