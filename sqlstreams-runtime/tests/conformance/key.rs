//! Message keys: `key_gate`, `key_ticket`.

use sqlstreams_runtime::backend::{
    ExceptionParams, ExceptionTakeParams, KeyAsk, KeyGateParams, KeyGateRow, ProgressParams, ReturnParams, SettleParams,
};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, MessageId, PresenceId, StreamId};

use crate::harness::{Installation, keyed, on_both, retry, settle_params, trouble};

on_both! {
    gate_is_open_when_nobody_else_works,
    gate_waits_for_lower_ranges_of_others_and_for_no_others,
    gate_opens_with_progress_and_with_the_end_of_a_range,
    gate_says_that_a_key_has_a_lane,
    gate_stays_shut_while_a_lower_range_has_no_owner,
    gate_answers_in_the_order_of_the_question,
    gate_counts_only_the_version_of_a_parked_range,
    gate_says_that_a_lane_runs,
    ticket_comes_after_what_is_claimed_and_before_what_follows,
    ticket_of_two_goes_to_the_one_that_got_it_first,
    ticket_by_a_lost_owner_is_none,
    ticket_counts_only_while_the_message_is_being_run,
}

const FREE: KeyGateRow = KeyGateRow { laned: false, lane_runs: false, busy: false, ticketed: false };
const BUSY: KeyGateRow = KeyGateRow { busy: true, ..FREE };
const LANED: KeyGateRow = KeyGateRow { laned: true, ..FREE };

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
        let keys = keys.iter().map(|&key| KeyAsk { key: key.to_owned(), low, message: None }).collect();
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
    assert_eq!(setting.gate(&[], 6, &["b", "a"]).await, [BUSY, KeyGateRow { laned: true, ..BUSY }]);
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

async fn gate_says_that_a_lane_runs(installation: &Installation) {
    let setting = Setting::new(installation).await;
    setting.trouble(1, Some(3)).await;
    setting.take().await;
    assert_eq!(setting.gate(&[], 20, &["a", "b"]).await, [KeyGateRow { lane_runs: true, ..LANED }, FREE]);
}

impl Setting<'_> {
    /// Claims four messages, of which `id` comes into trouble.
    async fn trouble(&self, id: i64, held_to: Option<i64>) {
        let token = self.claim(4).await;
        let key = if id % 2 == 1 { "a" } else { "b" };
        let exception = ExceptionParams {
            message_key: Some(key.to_owned()),
            held_to,
            ..trouble(id, retry(std::time::Duration::ZERO))
        };
        let params = SettleParams { exceptions: vec![exception], ..settle_params(self.stream, token) };
        assert!(self.installation.backend.lease_settle(&params).await.expect("a settlement"));
    }

    /// Takes what is in trouble.
    async fn take(&self) -> LeaseToken {
        let params = ExceptionTakeParams {
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
        };
        self.installation.backend.exception_take(&params).await.expect("an answer");
        params.token
    }

    async fn ticket(&self, token: LeaseToken, id: i64) -> Option<i64> {
        let backend = &self.installation.backend;
        backend.key_ticket(self.stream, self.group, token, MessageId(id)).await.expect("an answer")
    }

    /// What the message in trouble hears.
    async fn turn(&self, key: &str, ticket: i64, id: i64) -> KeyGateRow {
        let ask = KeyAsk { key: key.to_owned(), low: ticket, message: Some(MessageId(id)) };
        let params = KeyGateParams { stream: self.stream, group: self.group, own: Vec::new(), keys: vec![ask] };
        self.installation.backend.key_gate(&params).await.expect("an answer")[0]
    }
}

async fn ticket_comes_after_what_is_claimed_and_before_what_follows(installation: &Installation) {
    let setting = Setting::new(installation).await;
    setting.trouble(1, None).await;
    let before = setting.claim(4).await;
    let token = setting.take().await;
    assert_eq!(setting.ticket(token, 1).await, Some(8));
    setting.claim(4).await;
    assert_eq!(setting.turn("a", 8, 1).await, BUSY, "a range that was claimed before");
    let ticketed = KeyGateRow { ticketed: true, ..FREE };
    assert_eq!(setting.gate(&[before], 4, &["a", "b"]).await, [ticketed, FREE], "before it");
    assert_eq!(
        setting.gate(&[before], 8, &["a", "b"]).await,
        [KeyGateRow { busy: true, ..ticketed }, FREE],
        "after it"
    );
    assert!(installation.backend.lease_settle(&settle_params(setting.stream, before)).await.expect("a settlement"));
    assert_eq!(setting.turn("a", 8, 1).await, FREE, "the later range waits, and not this one");
}

async fn ticket_of_two_goes_to_the_one_that_got_it_first(installation: &Installation) {
    let setting = Setting::new(installation).await;
    setting.trouble(1, None).await;
    setting.trouble(7, None).await;
    let token = setting.take().await;
    let other = KeyGateRow { ticketed: true, ..FREE };
    for (first, second) in [(7, 1), (1, 7)] {
        assert_eq!(setting.ticket(token, first).await, Some(8));
        // It may be running by now, whichever of the two is lower.
        assert_eq!(setting.ticket(token, second).await, Some(8));
        assert_eq!(setting.turn("a", 8, first).await, other);
        assert_eq!(setting.turn("a", 8, second).await, KeyGateRow { busy: true, ..other });
    }
}

async fn ticket_by_a_lost_owner_is_none(installation: &Installation) {
    let setting = Setting::new(installation).await;
    setting.trouble(1, None).await;
    let token = setting.take().await;
    installation.expire(setting.presence).await;
    let thief = Setting { presence: installation.presence().await, ..setting };
    let taken = thief.take().await;
    assert_eq!(thief.ticket(token, 1).await, None);
    assert_eq!(thief.ticket(taken, 7).await, None, "no such message");
    assert_eq!(thief.ticket(taken, 1).await, Some(4));
}

async fn ticket_counts_only_while_the_message_is_being_run(installation: &Installation) {
    let setting = Setting::new(installation).await;
    setting.trouble(1, None).await;
    let token = setting.take().await;
    setting.ticket(token, 1).await;
    assert!(setting.gate(&[], 9, &["a"]).await[0].busy);
    installation.backend.exception_return(setting.stream, setting.group, token).await.expect("a return");
    assert_eq!(setting.gate(&[], 9, &["a"]).await, [FREE]);
}
