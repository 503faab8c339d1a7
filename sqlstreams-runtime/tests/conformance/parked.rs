//! Ranges that wait for a build that reads their version: `parked_take`.

use sqlstreams_runtime::backend::SettleParams;
use sqlstreams_runtime::identity::{GroupId, LeaseToken, PresenceId, StreamId};

use crate::harness::{Installation, claim_params, ids, on_both, read_params, settle_params};

on_both! {
    take_is_for_builds_that_read_the_version,
    take_gives_a_range_in_widths,
    take_without_width_takes_nothing,
    take_gives_the_oldest_range_that_the_build_reads,
    take_gives_a_lease_on_messages_of_one_version,
    take_stays_in_its_group,
    take_gives_every_id_once_to_eight_processes,
    take_whose_answer_was_lost_is_found_by_its_token,
    take_leaves_a_range_that_can_still_be_extended,
}

/// A stream with twenty messages, a group that has claimed all of them, and a process; these ranges are parked.
async fn setting(installation: &Installation, parked: Vec<(i32, i64, i64)>) -> (StreamId, GroupId, PresenceId) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    installation.produce(stream, 20).await;
    park(installation, (stream, group, presence), parked).await;
    (stream, group, presence)
}

async fn park(
    installation: &Installation,
    (stream, group, presence): (StreamId, GroupId, PresenceId),
    parked: Vec<(i32, i64, i64)>,
) {
    let (token, _) = installation.claim(stream, group, presence, 20).await;
    let params = SettleParams { parked, ..settle_params(stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
}

async fn take_is_for_builds_that_read_the_version(installation: &Installation) {
    let (stream, group, presence) = setting(installation, vec![(2, 0, 10), (3, 5, 20)]).await;
    for versions in [&[][..], &[1], &[1, 4]] {
        let params = claim_params(stream, group, presence, 100);
        let taken = installation.backend.parked_take(&params, versions).await.expect("a look");
        assert!(taken.is_none(), "a build that reads {versions:?}: {taken:?}");
    }
    assert_eq!(installation.parked(stream, group).await, ["2 (0, 10]", "3 (5, 20]"]);
    let params = claim_params(stream, group, presence, 100);
    let lease = installation.backend.parked_take(&params, &[1, 3]).await.expect("a look").expect("a range");
    assert_eq!((lease.token, lease.low, lease.high, lease.only_version), (params.token, 5, 20, Some(3)));
    assert_eq!((lease.reclaims, lease.done), (0, vec![]));
    assert_eq!(installation.parked(stream, group).await, ["2 (0, 10]"]);
}

async fn take_gives_a_range_in_widths(installation: &Installation) {
    let (stream, group, presence) = setting(installation, vec![(2, 0, 20)]).await;
    let mut low = 0;
    for (width, rest) in [(7, vec!["2 (7, 20]"]), (7, vec!["2 (14, 20]"]), (7, vec![])] {
        let params = claim_params(stream, group, presence, width);
        let lease = installation.backend.parked_take(&params, &[2]).await.expect("a look").expect("a range");
        assert_eq!((lease.low, lease.high), (low, (low + 7).min(20)));
        assert_eq!(installation.parked(stream, group).await, rest);
        low = lease.high;
        let position = installation.backend.cursor_position(stream, group).await.expect("a position");
        assert_eq!(position.settled, 0, "what is taken is not settled yet");
        assert!(installation.backend.lease_find(stream, params.token).await.expect("a look").is_some());
    }
    let params = claim_params(stream, group, presence, 7);
    assert!(installation.backend.parked_take(&params, &[2]).await.expect("a look").is_none());
}

async fn take_without_width_takes_nothing(installation: &Installation) {
    let (stream, group, presence) = setting(installation, vec![(2, 0, 20)]).await;
    let params = claim_params(stream, group, presence, 0);
    assert!(installation.backend.parked_take(&params, &[2]).await.expect("a look").is_none());
    assert_eq!(installation.parked(stream, group).await, ["2 (0, 20]"]);
    assert_eq!(installation.count(&installation.table_of("claim_lease", stream)).await, 0);
}

async fn take_gives_the_oldest_range_that_the_build_reads(installation: &Installation) {
    let parked = vec![(2, 12, 14), (3, 0, 3), (2, 4, 6), (4, 2, 20), (3, 8, 10)];
    let (stream, group, presence) = setting(installation, parked).await;
    let mut taken = Vec::new();
    while taken.len() < 10
        && let Some(lease) = installation
            .backend
            .parked_take(&claim_params(stream, group, presence, 100), &[2, 3])
            .await
            .expect("a look")
    {
        taken.push((lease.only_version, lease.low, lease.high));
    }
    assert_eq!(taken, [(Some(3), 0, 3), (Some(2), 4, 6), (Some(3), 8, 10), (Some(2), 12, 14)]);
    assert_eq!(installation.parked(stream, group).await, ["4 (2, 20]"]);
}

/// The ids of a parked range are shared by messages of several versions; each is handled under one lease only.
async fn take_gives_a_lease_on_messages_of_one_version(installation: &Installation) {
    let stream = installation.stream("events").await;
    let group = installation.group(stream, "readers").await;
    let presence = installation.presence().await;
    for version in [1, 2, 3, 2, 3] {
        installation.produce_version(stream, version, 1).await;
    }
    park(installation, (stream, group, presence), vec![(2, 0, 5), (3, 0, 5)]).await;
    for (version, expected) in [(2, [2, 4]), (3, [3, 5])] {
        let params = claim_params(stream, group, presence, 100);
        let lease = installation.backend.parked_take(&params, &[version]).await.expect("a look").expect("a range");
        let mut read = read_params(stream, lease.low, lease.high);
        (read.versions, read.only_version) = (vec![1, 2, 3], lease.only_version);
        assert_eq!(ids(&installation.backend.message_read(&read).await.expect("a range")), expected);
        assert!(installation.backend.lease_settle(&settle_params(stream, params.token)).await.expect("a settlement"));
    }
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!((position.claimed, position.settled, position.parked), (5, 5, 0));
}

async fn take_stays_in_its_group(installation: &Installation) {
    let (stream, group, presence) = setting(installation, vec![(2, 0, 20)]).await;
    let other = installation.group(stream, "others").await;
    let params = claim_params(stream, other, presence, 100);
    assert!(installation.backend.parked_take(&params, &[2]).await.expect("a look").is_none());
    let params = claim_params(stream, group, presence, 100);
    assert!(installation.backend.parked_take(&params, &[2]).await.expect("a look").is_some());
}

async fn take_gives_every_id_once_to_eight_processes(installation: &Installation) {
    let (stream, group, _) = setting(installation, vec![(2, 0, 9), (2, 11, 20), (3, 0, 20)]).await;
    let mut processes = tokio::task::JoinSet::new();
    for width in [1, 2, 3, 1, 2, 3, 1, 2] {
        let (backend, presence) = (installation.another().await, installation.presence().await);
        processes.spawn(async move {
            let (mut taken, mut misses) = (Vec::new(), 0);
            // A range that another process has just locked is skipped.
            while misses < 20 && taken.len() <= 40 {
                let params = claim_params(stream, group, presence, width);
                match backend.parked_take(&params, &[2, 3]).await.expect("a look") {
                    Some(lease) => taken.extend((lease.low + 1..=lease.high).map(|id| (lease.only_version, id))),
                    None => misses += 1,
                }
            }
            taken
        });
    }
    let mut taken: Vec<(Option<i32>, i64)> = processes.join_all().await.into_iter().flatten().collect();
    taken.sort_unstable();
    let second = (1..=20).filter(|id| !(10..=11).contains(id)).map(|id| (Some(2), id));
    assert_eq!(taken, second.chain((1..=20).map(|id| (Some(3), id))).collect::<Vec<_>>());
    assert!(installation.parked(stream, group).await.is_empty());
}

async fn take_whose_answer_was_lost_is_found_by_its_token(installation: &Installation) {
    let (stream, group, presence) = setting(installation, vec![(2, 0, 20)]).await;
    let params = claim_params(stream, group, presence, 5);
    installation.backend.parked_take(&params, &[2]).await.expect("an answer that gets lost");
    let lease = installation.another().await.lease_find(stream, params.token).await.expect("a look").expect("a lease");
    assert_eq!((lease.token, lease.low, lease.high, lease.only_version), (params.token, 0, 5, Some(2)));
    let none = installation.backend.lease_find(stream, LeaseToken::mint()).await.expect("a look");
    assert!(none.is_none());
}

/// New messages of the version go on where the parked range ends, while its beginning is being handled.
async fn take_leaves_a_range_that_can_still_be_extended(installation: &Installation) {
    let (stream, group, presence) = setting(installation, vec![(2, 0, 20)]).await;
    let params = claim_params(stream, group, presence, 8);
    installation.backend.parked_take(&params, &[2]).await.expect("a look").expect("a range");
    installation.produce_version(stream, 2, 10).await;
    park(installation, (stream, group, presence), vec![(2, 20, 30)]).await;
    assert_eq!(installation.parked(stream, group).await, ["2 (8, 30]"]);
}
