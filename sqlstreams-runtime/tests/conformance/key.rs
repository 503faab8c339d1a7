//! Message keys: `key_gate`.

use sqlstreams_runtime::backend::{KeyGateParams, KeyGateRow, ProgressParams, ReturnParams, SettleParams};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, PresenceId, StreamId};

use crate::harness::{Installation, keyed, on_both, retry, settle_params, trouble};

on_both! {
    gate_is_open_when_nobody_else_works,
    gate_waits_for_lower_ranges_of_others_and_for_no_others,
    gate_opens_with_progress_and_with_the_end_of_a_range,
    gate_says_that_a_key_has_a_lane,
    gate_stays_shut_while_a_lower_range_has_no_owner,
    gate_answers_in_the_order_of_the_question,
    gate_counts_only_the_version_of_a_parked_range,
}

const FREE: KeyGateRow = KeyGateRow { laned: false, busy: false };
const BUSY: KeyGateRow = KeyGateRow { laned: false, busy: true };
const LANED: KeyGateRow = KeyGateRow { laned: true, busy: false };

/// A stream whose messages 1 to 20 have the keys `a`, `b`, `a`, `b` and so on.
struct Setting<'a> {
    installation: &'a Installation,
    stream: StreamId,
    group: GroupId,
    presence: PresenceId,
}

impl<'a> Setting<'a> {
    async fn new(installation: &'a Installation) -> Self {
        let stream = installation.stream("events").await;
        let group = installation.group(stream, "readers").await;
        let messages: Vec<_> = (0..20).map(|number| keyed(if number % 2 == 0 { "a" } else { "b" }, number)).collect();
        installation.backend.message_produce(stream, 1, 0, &messages).await.expect("a batch can be produced");
        Self { installation, stream, group, presence: installation.presence().await }
    }

    async fn claim(&self, width: i64) -> LeaseToken {
        self.installation.claim(self.stream, self.group, self.presence, width).await.0
    }

    /// What a range that begins at `low` hears about `keys`, when the caller has the leases `own`.
    async fn gate(&self, own: &[LeaseToken], low: i64, keys: &[&str]) -> Vec<KeyGateRow> {
        let keys = keys.iter().map(|&key| (key.to_owned(), low)).collect();
        let params = KeyGateParams { stream: self.stream, group: self.group, own: own.to_vec(), keys };
        self.installation.backend.key_gate(&params).await.expect("an answer")
    }
}

async fn gate_is_open_when_nobody_else_works(installation: &Installation) {
    let setting = Setting::new(installation).await;
    assert_eq!(setting.gate(&[], 10, &["a", "b", "none"]).await, [FREE; 3]);
    assert_eq!(setting.gate(&[], 10, &[]).await, []);
    let own = setting.claim(10).await;
    assert_eq!(setting.gate(&[own], 10, &["a", "b"]).await, [FREE; 2]);
}

async fn gate_waits_for_lower_ranges_of_others_and_for_no_others(installation: &Installation) {
    let setting = Setting::new(installation).await;
    // Message 1 alone has the key `a`, message 2 the key `b`.
    let (lowest, _higher) = (setting.claim(1).await, setting.claim(1).await);
    assert_eq!(setting.gate(&[], 1, &["a", "b", "none"]).await, [BUSY, FREE, FREE], "message 2 is not below");
    assert_eq!(setting.gate(&[], 2, &["a", "b"]).await, [BUSY, BUSY]);
    assert_eq!(setting.gate(&[lowest], 2, &["a", "b"]).await, [FREE, BUSY]);
    let other = installation.group(setting.stream, "others").await;
    let elsewhere = Setting { group: other, ..setting };
    assert_eq!(elsewhere.gate(&[], 2, &["a", "b"]).await, [FREE; 2], "another group's ranges");
}

async fn gate_opens_with_progress_and_with_the_end_of_a_range(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let (stream, group, presence) = (setting.stream, setting.group, setting.presence);
    let token = setting.claim(4).await;
    let report = async |done: &[(i64, i64)]| {
        let progress = [ProgressParams { token, done: done.to_vec() }];
        let report = installation.backend.lease_report(stream, group, presence, &[token], &progress).await;
        assert_eq!(report.expect("a report"), [token]);
    };
    for (done, gates) in
        [(vec![(0, 1)], [BUSY, BUSY]), (vec![(0, 1), (2, 3)], [FREE, BUSY]), (vec![(0, 4)], [FREE, FREE])]
    {
        report(&done).await;
        assert_eq!(setting.gate(&[], 4, &["a", "b"]).await, gates, "{done:?}");
    }
    report(&[]).await;
    assert_eq!(setting.gate(&[], 4, &["a", "b"]).await, [BUSY, BUSY]);
    assert!(installation.backend.lease_settle(&settle_params(stream, token)).await.expect("a settlement"));
    assert_eq!(setting.gate(&[], 4, &["a", "b"]).await, [FREE, FREE]);
}

async fn gate_says_that_a_key_has_a_lane(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let token = setting.claim(4).await;
    let mut exception = trouble(1, retry(std::time::Duration::from_secs(60)));
    (exception.message_key, exception.held_to) = (Some("a".to_owned()), Some(3));
    let params = SettleParams { exceptions: vec![exception], ..settle_params(setting.stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    assert_eq!(setting.gate(&[], 4, &["b", "a"]).await, [FREE, LANED]);
    let _lower = setting.claim(2).await;
    assert_eq!(setting.gate(&[], 6, &["b", "a"]).await, [BUSY, KeyGateRow { laned: true, busy: true }]);
}

async fn gate_stays_shut_while_a_lower_range_has_no_owner(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let token = setting.claim(4).await;
    let back = ReturnParams { token, done: vec![(0, 2)], exceptions: Vec::new() };
    installation.backend.lease_return(setting.stream, &[back]).await.expect("a return");
    assert_eq!(setting.gate(&[], 4, &["a", "b"]).await, [BUSY, BUSY]);
    // Whoever took the range over holds it, and lines it up, under another token.
    let taken = LeaseToken::mint();
    let reclaim = installation.backend.lease_reclaim(setting.stream, setting.group, setting.presence, taken).await;
    assert!(reclaim.expect("a look").is_some());
    assert_eq!(setting.gate(&[token], 4, &["a"]).await, [BUSY]);
    assert_eq!(setting.gate(&[taken], 4, &["a"]).await, [FREE]);
}

async fn gate_answers_in_the_order_of_the_question(installation: &Installation) {
    let setting = Setting::new(installation).await;
    setting.claim(1).await;
    let keys: Vec<_> =
        (0..50).map(|number| if number % 7 == 3 { "a".to_owned() } else { format!("k{number}") }).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let busy: Vec<_> = setting.gate(&[], 9, &keys).await.iter().map(|row| row.busy).collect();
    assert_eq!(busy, keys.iter().map(|key| *key == "a").collect::<Vec<_>>());
}

async fn gate_counts_only_the_version_of_a_parked_range(installation: &Installation) {
    let setting = Setting::new(installation).await;
    let stream = setting.stream;
    let token = setting.claim(4).await;
    let params = SettleParams { parked: vec![(2, 0, 4)], ..settle_params(stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    let claim = crate::harness::claim_params(stream, setting.group, setting.presence, 4);
    let taken = installation.backend.parked_take(&claim, &[2]).await.expect("an answer");
    assert!(taken.is_some());
    assert_eq!(setting.gate(&[], 4, &["a", "b"]).await, [FREE; 2], "the messages are of version 1");
}
