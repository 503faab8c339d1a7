//! Range leases after their claim: `lease_find`, `lease_settle`, `lease_reclaim`, `lease_report`, `lease_return`.

use std::time::Duration;

use sqlstreams_runtime::backend::{ExceptionNext, ProgressParams, ReturnParams, SettleParams};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, PresenceId, StreamId};
use tokio::task::JoinSet;

use crate::exception::{FAR, Setting};
use crate::harness::{Installation, claim_params, on_both, retry, settle_params, trouble};

mod settlement;

on_both! {
    find_gives_the_lease_with_the_token,
    settle_ends_the_lease,
    reclaim_takes_the_oldest_range_whose_owner_is_gone,
    reclaim_leaves_the_ranges_of_live_owners_alone,
    reclaim_counts_lost_owners_only,
    reclaim_keeps_what_was_reported_over_several_owners,
    reclaim_gives_every_range_to_one_of_eight_processes,
    reclaim_stays_in_its_group,
    reclaim_finds_a_range_whose_owner_has_no_presence_row,
    reclaim_keeps_the_version_of_a_parked_range,
    report_answers_the_tokens_that_are_still_owned,
    report_replaces_the_progress_of_a_lease,
    report_of_a_lost_owner_changes_nothing,
    report_frees_what_was_forgotten_for_ten_seconds,
    report_leaves_the_ranges_of_others_alone,
    return_lets_anybody_take_the_rest_at_once,
    return_records_the_messages_in_trouble_once,
    return_by_a_lost_owner_changes_nothing,
    return_by_a_lost_owner_records_no_trouble,
}

/// A stream with a group, twenty messages and a process.
async fn setting(installation: &Installation) -> (StreamId, GroupId, PresenceId) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    installation.produce(stream, 20).await;
    (stream, group, installation.presence().await)
}

fn progress(token: LeaseToken, done: &[(i64, i64)]) -> ProgressParams {
    ProgressParams { token, done: done.to_vec() }
}

fn back(token: LeaseToken, done: &[(i64, i64)]) -> ReturnParams {
    ReturnParams { token, done: done.to_vec(), exceptions: Vec::new() }
}

async fn find_gives_the_lease_with_the_token(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    assert!(backend.lease_find(stream, LeaseToken::mint()).await.expect("a look").is_none());
    let (first, _) = installation.claim(stream, group, presence, 5).await;
    let (second, _) = installation.claim(stream, group, presence, 5).await;
    let lease = backend.lease_find(stream, second).await.expect("a look").expect("a lease");
    assert_eq!((lease.token, lease.low, lease.high, lease.only_version), (second, 5, 10, None));
    assert!(backend.lease_settle(&settle_params(stream, first)).await.expect("a settlement"));
    assert!(backend.lease_find(stream, first).await.expect("a look").is_none(), "a settled lease is gone");
    installation.expire(presence).await;
    let thief = installation.presence().await;
    let taken = LeaseToken::mint();
    backend.lease_reclaim(stream, group, thief, taken).await.expect("a look").expect("a range without owner");
    assert!(backend.lease_find(stream, second).await.expect("a look").is_none(), "its token is another one now");
    let lease = backend.lease_find(stream, taken).await.expect("a look").expect("a lease");
    assert_eq!((lease.token, lease.low, lease.high, lease.reclaims), (taken, 5, 10, 1));
}

async fn settle_ends_the_lease(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let (token, _) = installation.claim(stream, group, presence, 5).await;
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.claimed, position.settled), (5, 0));
    assert!(installation.backend.lease_settle(&settle_params(stream, token)).await.expect("a settlement"));
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.claimed, position.settled), (5, 5));
    assert!(!installation.backend.lease_settle(&settle_params(stream, token)).await.expect("no settlement"));
}

async fn reclaim_takes_the_oldest_range_whose_owner_is_gone(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    for _ in 0..3 {
        installation.claim(stream, group, presence, 3).await;
    }
    installation.expire(presence).await;
    let thief = installation.presence().await;
    for low in [0, 3, 6] {
        let token = LeaseToken::mint();
        let taken = installation.backend.lease_reclaim(stream, group, thief, token).await.expect("a look");
        let lease = taken.expect("a range without owner");
        assert_eq!((lease.token, lease.low, lease.high), (token, low, low + 3));
        assert_eq!((lease.reclaims, lease.only_version), (1, None));
    }
    let taken = installation.backend.lease_reclaim(stream, group, thief, LeaseToken::mint()).await.expect("a look");
    assert!(taken.is_none(), "everything has an owner: {taken:?}");
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.claimed, position.settled), (9, 0), "a takeover moves nothing");
}

async fn reclaim_leaves_the_ranges_of_live_owners_alone(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let (token, _) = installation.claim(stream, group, presence, 3).await;
    let thief = installation.presence().await;
    // Every so many looks go deeper than the others.
    for _ in 0..70 {
        let taken = installation.backend.lease_reclaim(stream, group, thief, LeaseToken::mint()).await.expect("a look");
        assert!(taken.is_none(), "its owner lives: {taken:?}");
    }
    assert!(installation.backend.lease_find(stream, token).await.expect("a look").is_some());
}

async fn reclaim_counts_lost_owners_only(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    let (token, _) = installation.claim(stream, group, presence, 5).await;
    let take = async |owner| {
        let taken = backend.lease_reclaim(stream, group, owner, LeaseToken::mint()).await.expect("a look");
        taken.expect("a range without owner")
    };
    backend.lease_return(stream, &[back(token, &[])]).await.expect("a return");
    let first = installation.presence().await;
    assert_eq!(take(first).await.reclaims, 0, "it was given back");
    installation.expire(first).await;
    let second = installation.presence().await;
    assert_eq!(take(second).await.reclaims, 1, "an owner was lost");
    backend.presence_leave(second).await.expect("an orderly end");
    let third = installation.presence().await;
    let lease = take(third).await;
    assert_eq!(lease.reclaims, 2, "a process left with the range");
    backend.lease_return(stream, &[back(lease.token, &[])]).await.expect("a return");
    assert_eq!(take(first).await.reclaims, 2, "it was given back; what was counted stays");
}

async fn reclaim_keeps_what_was_reported_over_several_owners(installation: &Installation) {
    let (stream, group, mut owner) = setting(installation).await;
    let backend = &installation.backend;
    let (mut token, _) = installation.claim(stream, group, owner, 10).await;
    for done in [vec![(0, 2)], vec![(0, 2), (4, 5)], vec![(0, 7), (8, 9)]] {
        backend.lease_report(stream, group, owner, &[token], &[progress(token, &done)]).await.expect("a report");
        for _ in 0..2 {
            installation.expire(owner).await;
            owner = installation.presence().await;
            token = LeaseToken::mint();
            let taken = backend.lease_reclaim(stream, group, owner, token).await.expect("a look");
            let lease = taken.expect("a range without owner");
            assert_eq!((lease.low, lease.high, lease.done), (0, 10, done.clone()));
        }
    }
}

async fn reclaim_gives_every_range_to_one_of_eight_processes(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    for _ in 0..20 {
        installation.claim(stream, group, presence, 1).await;
    }
    installation.expire(presence).await;
    let mut processes = JoinSet::new();
    for _ in 0..8 {
        let backend = installation.another().await;
        let presence = installation.presence().await;
        processes.spawn(async move {
            let (mut taken, mut misses) = (Vec::new(), 0);
            // A row that another process has just locked is skipped.
            while misses < 5 && taken.len() <= 20 {
                match backend.lease_reclaim(stream, group, presence, LeaseToken::mint()).await.expect("a look") {
                    Some(lease) => taken.push(lease.low),
                    None => misses += 1,
                }
            }
            taken
        });
    }
    let mut taken: Vec<i64> = processes.join_all().await.into_iter().flatten().collect();
    taken.sort_unstable();
    assert_eq!(taken, (0..20).collect::<Vec<i64>>());
    let reclaims = format!("select sum(reclaims)::bigint from {}", installation.table_of("claim_lease", stream));
    let reclaims = if installation.is_postgres() { reclaims } else { reclaims.replace("::bigint", "") };
    assert_eq!(installation.number(&reclaims).await, 20, "each loss is counted once");
}

async fn reclaim_stays_in_its_group(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let other = installation.group(stream, "others").await;
    installation.claim(stream, group, presence, 3).await;
    installation.expire(presence).await;
    let thief = installation.presence().await;
    for _ in 0..3 {
        let taken = installation.backend.lease_reclaim(stream, other, thief, LeaseToken::mint()).await.expect("a look");
        assert!(taken.is_none(), "the range is another group's: {taken:?}");
    }
    let taken = installation.backend.lease_reclaim(stream, group, thief, LeaseToken::mint()).await.expect("a look");
    assert!(taken.is_some());
}

async fn reclaim_finds_a_range_whose_owner_has_no_presence_row(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    installation.claim(stream, group, presence, 3).await;
    installation.execute(&format!("delete from {}", installation.table("presence"))).await;
    let thief = installation.presence().await;
    let mut looks = 0;
    let lease = loop {
        looks += 1;
        assert!(looks <= 64, "a range without owner stayed unseen");
        let taken = installation.backend.lease_reclaim(stream, group, thief, LeaseToken::mint()).await.expect("a look");
        if let Some(lease) = taken {
            break lease;
        }
    };
    assert_eq!((lease.low, lease.high, lease.reclaims), (0, 3, 1));
}

async fn reclaim_keeps_the_version_of_a_parked_range(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    let (token, _) = installation.claim(stream, group, presence, 5).await;
    let params = SettleParams { parked: vec![(2, 0, 5)], ..settle_params(stream, token) };
    assert!(backend.lease_settle(&params).await.expect("a settlement"));
    let take = claim_params(stream, group, presence, 3);
    backend.parked_take(&take, &[2]).await.expect("a look").expect("a parked range");
    installation.expire(presence).await;
    let thief = installation.presence().await;
    let taken = backend.lease_reclaim(stream, group, thief, LeaseToken::mint()).await.expect("a look");
    let lease = taken.expect("a range without owner");
    assert_eq!((lease.low, lease.high, lease.only_version, lease.reclaims), (0, 3, Some(2), 1));
}

async fn report_answers_the_tokens_that_are_still_owned(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    let (lost, _) = installation.claim(stream, group, presence, 2).await;
    installation.expire(presence).await;
    let thief = installation.presence().await;
    let taken = LeaseToken::mint();
    backend.lease_reclaim(stream, group, thief, taken).await.expect("a look").expect("a range without owner");
    assert!(backend.presence_renew(presence, crate::harness::LONG).await.expect("a renewal"));
    let (kept, _) = installation.claim(stream, group, presence, 2).await;
    let (settled, _) = installation.claim(stream, group, presence, 2).await;
    assert!(backend.lease_settle(&settle_params(stream, settled)).await.expect("a settlement"));
    let tokens = [lost, kept, settled, LeaseToken::mint()];
    let done = [progress(lost, &[(0, 1)]), progress(kept, &[(2, 3)])];
    for progress in [&done[..], &[]] {
        let owned = backend.lease_report(stream, group, presence, &tokens, progress).await.expect("a report");
        assert_eq!(owned, [kept]);
        let owned = backend.lease_report(stream, group, thief, &[taken], &[]).await.expect("a report");
        assert_eq!(owned, [taken]);
    }
    assert!(backend.lease_report(stream, group, presence, &[], &[]).await.expect("a report").is_empty());
}

async fn report_replaces_the_progress_of_a_lease(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    let (first, _) = installation.claim(stream, group, presence, 10).await;
    let (second, _) = installation.claim(stream, group, presence, 10).await;
    let steps = [
        (vec![(0, 3)], vec![(0, 3)]),
        (vec![(0, 3), (5, 6)], vec![(0, 3), (5, 6)]),
        (vec![(5, 8), (0, 3), (3, 4)], vec![(0, 4), (5, 8)]),
        (vec![], vec![]),
    ];
    for (reported, kept) in steps {
        for _ in 0..2 {
            let both = [progress(first, &reported), progress(second, &[(10, 12)])];
            let owned = backend.lease_report(stream, group, presence, &[first, second], &both).await.expect("a report");
            assert_eq!(owned.len(), 2);
            let lease = backend.lease_find(stream, first).await.expect("a look").expect("a lease");
            assert_eq!(lease.done, kept);
            let lease = backend.lease_find(stream, second).await.expect("a look").expect("a lease");
            assert_eq!(lease.done, [(10, 12)]);
        }
    }
}

async fn report_of_a_lost_owner_changes_nothing(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    let (lost, _) = installation.claim(stream, group, presence, 5).await;
    installation.expire(presence).await;
    let thief = installation.presence().await;
    let taken = LeaseToken::mint();
    backend.lease_reclaim(stream, group, thief, taken).await.expect("a look").expect("a range without owner");
    let late = [progress(lost, &[(0, 5)])];
    assert!(backend.lease_report(stream, group, presence, &[lost], &late).await.expect("a report").is_empty());
    let lease = backend.lease_find(stream, taken).await.expect("a look").expect("a lease");
    assert_eq!(lease.done, []);
}

async fn report_frees_what_was_forgotten_for_ten_seconds(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    let (used, _) = installation.claim(stream, group, presence, 2).await;
    installation.claim(stream, group, presence, 3).await;
    let thief = installation.presence().await;
    let age = async |seconds| {
        let (leases, past) =
            (installation.table_of("claim_lease", stream), installation.ago(Duration::from_secs(seconds)));
        installation.execute(&format!("update {leases} set claimed_at = {past}")).await;
    };
    age(2).await;
    for _ in 0..2 {
        let owned = backend.lease_report(stream, group, presence, &[used], &[]).await.expect("a report");
        assert_eq!(owned, [used]);
        let taken = backend.lease_reclaim(stream, group, thief, LeaseToken::mint()).await.expect("a look");
        assert!(taken.is_none(), "its claim may still be on its way: {taken:?}");
    }
    age(11).await;
    let owned = backend.lease_report(stream, group, presence, &[used], &[]).await.expect("a report");
    assert_eq!(owned, [used]);
    let taken = backend.lease_reclaim(stream, group, thief, LeaseToken::mint()).await.expect("a look");
    let lease = taken.expect("the forgotten range is free");
    assert_eq!((lease.low, lease.high, lease.reclaims), (2, 5, 0), "no owner was lost");
    let taken = backend.lease_reclaim(stream, group, thief, LeaseToken::mint()).await.expect("a look");
    assert!(taken.is_none(), "the range in use is not free: {taken:?}");
}

async fn report_leaves_the_ranges_of_others_alone(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    let other_group = installation.group(stream, "others").await;
    let neighbour = installation.presence().await;
    installation.claim(stream, group, neighbour, 2).await;
    installation.claim(stream, other_group, presence, 2).await;
    let (leases, past) = (installation.table_of("claim_lease", stream), installation.ago(Duration::from_secs(120)));
    installation.execute(&format!("update {leases} set claimed_at = {past}")).await;
    backend.lease_report(stream, group, presence, &[], &[]).await.expect("a report");
    for group in [group, other_group] {
        let taken = backend.lease_reclaim(stream, group, presence, LeaseToken::mint()).await.expect("a look");
        assert!(taken.is_none(), "not this process's, or not this group's: {taken:?}");
    }
}

async fn return_lets_anybody_take_the_rest_at_once(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    let (first, _) = installation.claim(stream, group, presence, 5).await;
    let (second, _) = installation.claim(stream, group, presence, 5).await;
    let (kept, _) = installation.claim(stream, group, presence, 5).await;
    backend.lease_return(stream, &[]).await.expect("a return of nothing");
    for _ in 0..2 {
        let leases = [back(first, &[(0, 2)]), back(second, &[]), back(LeaseToken::mint(), &[(0, 1)])];
        backend.lease_return(stream, &leases).await.expect("a return");
    }
    for (low, done) in [(0, vec![(0, 2)]), (5, vec![])] {
        let taken = backend.lease_reclaim(stream, group, presence, LeaseToken::mint()).await.expect("a look");
        let lease = taken.expect("a range that was given back");
        assert_eq!((lease.low, lease.high, lease.reclaims, lease.done), (low, low + 5, 0, done));
    }
    let taken = backend.lease_reclaim(stream, group, presence, LeaseToken::mint()).await.expect("a look");
    assert!(taken.is_none(), "{taken:?}");
    assert!(backend.lease_find(stream, kept).await.expect("a look").is_some());
}

async fn return_records_the_messages_in_trouble_once(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let Setting { stream, group, presence, .. } = setting;
    let backend = &installation.backend;
    let (first, _) = installation.claim(stream, group, presence, 5).await;
    let (second, _) = installation.claim(stream, group, presence, 5).await;
    let dead = ExceptionNext::Dead { error: "it can't be handled".to_owned() };
    let leases = [
        ReturnParams {
            exceptions: vec![trouble(1, retry(Duration::ZERO)), trouble(2, dead)],
            ..back(first, &[(0, 2)])
        },
        ReturnParams { exceptions: vec![trouble(9, retry(Duration::ZERO))], ..back(second, &[(8, 9)]) },
    ];
    backend.lease_return(stream, &leases).await.expect("a return");
    let position = backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.ready, position.dead), (2, 1));
    let (token, rows) = setting.take(FAR, 10).await;
    let seen: Vec<_> = rows.iter().map(|row| (row.id.0, row.attempts, row.failures)).collect();
    assert_eq!(seen, [(1, 1, 1), (9, 1, 1)]);
    setting.settle(token, vec![trouble(1, ExceptionNext::Done), trouble(9, ExceptionNext::Done)]).await;
    // The answer was lost, and meanwhile the messages were handled.
    backend.lease_return(stream, &leases).await.expect("a repeated return");
    let position = backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.ready, position.dead), (0, 1));
    let mut done = Vec::new();
    for _ in 0..2 {
        let taken = backend.lease_reclaim(stream, group, presence, LeaseToken::mint()).await.expect("a look");
        done.push(taken.expect("a range that was given back").done);
    }
    assert_eq!(done, [vec![(0, 2)], vec![(8, 9)]]);
}

async fn return_by_a_lost_owner_records_no_trouble(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    let (lost, _) = installation.claim(stream, group, presence, 5).await;
    installation.expire(presence).await;
    let thief = installation.presence().await;
    backend.lease_reclaim(stream, group, thief, LeaseToken::mint()).await.expect("a look").expect("a range");
    let late = ReturnParams { exceptions: vec![trouble(1, retry(Duration::ZERO))], ..back(lost, &[(0, 1)]) };
    backend.lease_return(stream, &[late]).await.expect("a late return");
    assert_eq!(backend.cursor_position(stream, group).await.expect("a position").ready, 0);
}

async fn return_by_a_lost_owner_changes_nothing(installation: &Installation) {
    let (stream, group, presence) = setting(installation).await;
    let backend = &installation.backend;
    let (lost, _) = installation.claim(stream, group, presence, 5).await;
    installation.expire(presence).await;
    let thief = installation.presence().await;
    let taken = LeaseToken::mint();
    backend.lease_reclaim(stream, group, thief, taken).await.expect("a look").expect("a range without owner");
    backend.lease_return(stream, &[back(lost, &[(0, 5)])]).await.expect("a late return");
    let lease = backend.lease_find(stream, taken).await.expect("a look").expect("a lease");
    assert_eq!(lease.done, []);
    let again = backend.lease_reclaim(stream, group, presence, LeaseToken::mint()).await.expect("a look");
    assert!(again.is_none(), "the new owner keeps it: {again:?}");
}
