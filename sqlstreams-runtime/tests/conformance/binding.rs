//! The bindings of a group while builds with other ones replace each other: `binding_declare`.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::backend::{
    BindingHold, BindingParams, BindingRow, GroupParams, PresenceParams, Registered, ReturnParams,
};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, PresenceId, StreamId};
use tokio::sync::Barrier;

use crate::harness::{Installation, LONG, code, group_params, on_both, presence_params};

on_both! {
    declare_stores_what_nothing_holds,
    declare_knows_a_set_by_its_patterns_alone,
    declare_waits_as_long_as_a_live_process_declares_the_stored_ones,
    declare_waits_for_processes_of_its_own_group_only,
    declare_lets_whoever_waits_longest_go_first,
    declare_waits_for_ranges_that_nobody_works_on,
    declare_nothing_only_answers_what_is_stored,
    declare_from_many_processes_stores_one_set,
    declare_for_a_group_that_is_gone_is_refused,
    declare_at_registration_keeps_the_stored_ones_too,
}

struct Scene<'a> {
    installation: &'a Installation,
    stream: StreamId,
    group: GroupId,
}

fn set(patterns: &[&str]) -> Vec<String> {
    patterns.iter().map(|&pattern| pattern.to_owned()).collect()
}

/// What a process says that listens to `events` as `readers`.
fn says(bindings: &[&str]) -> String {
    said_of("events", "readers", bindings)
}

fn said_of(stream: &str, group: &str, bindings: &[&str]) -> String {
    serde_json::json!([{"stream": stream, "group": group, "versions": [1], "bindings": bindings}]).to_string()
}

fn stored(patterns: &[&str]) -> BindingRow {
    BindingRow { patterns: set(patterns), hold: None }
}

fn held(patterns: &[&str], hold: BindingHold) -> BindingRow {
    BindingRow { patterns: set(patterns), hold: Some(hold) }
}

fn by(process: &str) -> BindingHold {
    BindingHold::Declared(process.to_owned())
}

impl<'a> Scene<'a> {
    /// Group `readers` of `events` with these bindings.
    async fn new(installation: &'a Installation, bindings: &[&str]) -> Self {
        let stream = installation.stream("events").await;
        let params = GroupParams { bindings: set(bindings), ..group_params(stream, "readers") };
        let row = installation.backend.group_register(&params).await.expect("a group");
        let mut sorted = bindings.to_vec();
        sorted.sort_unstable();
        assert_eq!((row.registered, row.bindings), (Registered::Created, stored(&sorted)));
        Self { installation, stream, group: row.id }
    }

    /// A live process that says this of itself, and began so long ago.
    async fn process(&self, name: &str, readable: String, age: u64) -> PresenceId {
        let params = PresenceParams { process: name.to_owned(), readable, ..presence_params(LONG) };
        self.installation.backend.presence_enter(&params).await.expect("a presence");
        let (table, began) = (self.installation.table("presence"), self.installation.ago(Duration::from_secs(age)));
        self.installation.execute(&format!("update {table} set started_at = {began} where process = '{name}'")).await;
        params.id
    }

    fn params(&self, presence: impl Into<Option<PresenceId>>, declared: Option<&[&str]>) -> BindingParams {
        BindingParams { stream: self.stream, group: self.group, presence: presence.into(), declared: declared.map(set) }
    }

    async fn declare(&self, presence: impl Into<Option<PresenceId>>, declared: &[&str]) -> BindingRow {
        let params = self.params(presence, Some(declared));
        self.installation.backend.binding_declare(&params).await.expect("an answer")
    }

    async fn stored(&self) -> Vec<String> {
        let table = self.installation.table_of("binding_config", self.stream);
        let mut stored = self.installation.texts(&format!("select pattern from {table}")).await;
        stored.sort();
        stored
    }
}

async fn declare_stores_what_nothing_holds(installation: &Installation) {
    let scene = Scene::new(installation, &["old.*"]).await;
    let new = scene.process("new", says(&["new.*"]), 0).await;
    for (presence, declared) in
        [(Some(new), &["new.*"][..]), (None, &["other.**", "a"]), (None, &[]), (None, &["it's \"{quoted}\", \\"])]
    {
        let scene_process = scene.declare(presence, declared).await;
        let mut sorted = declared.to_vec();
        sorted.sort_unstable();
        assert_eq!(scene_process, stored(&sorted));
        assert_eq!(scene.stored().await, sorted);
        // The rest of the test is about nobody at all.
        installation.expire(new).await;
    }
}

async fn declare_knows_a_set_by_its_patterns_alone(installation: &Installation) {
    let scene = Scene::new(installation, &["b", "a"]).await;
    let old = scene.process("old", says(&["b", "a", "b"]), 9).await;
    let new = scene.process("new", says(&["c"]), 0).await;
    assert_eq!(scene.declare(old, &["b", "a", "b"]).await, stored(&["a", "b"]));
    assert_eq!(scene.declare(new, &["c"]).await, held(&["a", "b"], by("old")));
    installation.expire(old).await;
    assert_eq!(scene.declare(new, &["c", "c"]).await, stored(&["c"]));
}

async fn declare_waits_as_long_as_a_live_process_declares_the_stored_ones(installation: &Installation) {
    for (round, old_set) in [&["old.*"][..], &[]].into_iter().enumerate() {
        let stream = installation.stream("events").await;
        let name = format!("readers-{round}");
        let params = GroupParams { bindings: set(old_set), ..group_params(stream, &name) };
        let group = installation.backend.group_register(&params).await.expect("a group").id;
        let scene = Scene { installation, stream, group };
        let said = |bindings: &[&str]| said_of("events", &name, bindings);
        let first = scene.process("first", said(old_set), 9).await;
        let second = scene.process("second", said(old_set), 8).await;
        let new = scene.process("new", said(&["new.*"]), 0).await;
        assert_eq!(scene.declare(new, &["new.*"]).await, held(old_set, by("first")));
        assert_eq!(scene.declare(new, &["new.*"]).await, held(old_set, by("first")), "it can be repeated");
        assert_eq!(scene.declare(None, &["other"]).await, held(old_set, by("first")), "nor may a passer-by");
        installation.backend.presence_leave(first).await.expect("it leaves");
        assert_eq!(scene.declare(new, &["new.*"]).await, held(old_set, by("second")));
        assert_eq!(scene.declare(second, old_set).await, stored(old_set), "who holds them has nothing to wait for");
        installation.expire(second).await;
        assert_eq!(scene.declare(new, &["new.*"]).await, stored(&["new.*"]));
        // Alive again, the old one asks first, and is too late.
        installation.backend.presence_renew(second, LONG).await.expect("a renewal");
        let asks = scene.params(second, None);
        assert_eq!(installation.backend.binding_declare(&asks).await.expect("an answer"), stored(&["new.*"]));
        assert_eq!(scene.declare(second, old_set).await, held(&["new.*"], by("new")), "nor can it take them back");
        for presence in [second, new] {
            installation.expire(presence).await;
        }
    }
}

async fn declare_waits_for_processes_of_its_own_group_only(installation: &Installation) {
    let scene = Scene::new(installation, &["old.*"]).await;
    scene.process("another group", said_of("events", "others", &["old.*"]), 9).await;
    scene.process("another stream", said_of("bills", "readers", &["old.*"]), 9).await;
    scene.process("nothing", "[]".to_owned(), 9).await;
    let follows = r#"[{"stream": "events", "group": "readers", "versions": [1]}]"#;
    scene.process("follows", follows.to_owned(), 9).await;
    let new = scene.process("new", says(&["new.*"]), 0).await;
    assert_eq!(scene.declare(new, &["new.*"]).await, stored(&["new.*"]));
    let both = serde_json::json!([
        {"stream": "bills", "group": "readers", "versions": [1], "bindings": ["x"]},
        {"stream": "events", "group": "readers", "versions": [1], "bindings": ["new.*"]},
    ]);
    scene.process("two groups", both.to_string(), 5).await;
    installation.expire(new).await;
    assert_eq!(scene.declare(None, &["newer"]).await, held(&["new.*"], by("two groups")));
}

async fn declare_lets_whoever_waits_longest_go_first(installation: &Installation) {
    let scene = Scene::new(installation, &["old"]).await;
    let old = scene.process("old", says(&["old"]), 9).await;
    let second = scene.process("second", says(&["second"]), 5).await;
    let third = scene.process("third", says(&["third"]), 4).await;
    let also_third = scene.process("also third", says(&["third"]), 3).await;
    for (presence, declared) in [(second, "second"), (third, "third"), (also_third, "third")] {
        assert_eq!(scene.declare(presence, &[declared]).await, held(&["old"], by("old")));
    }
    installation.expire(old).await;
    let queued = held(&["old"], BindingHold::Queued("second".to_owned()));
    for presence in [Some(third), Some(also_third), None] {
        assert_eq!(scene.declare(presence, &["third"]).await, queued);
    }
    assert_eq!(scene.declare(second, &["second"]).await, stored(&["second"]));
    assert_eq!(scene.declare(third, &["third"]).await, held(&["second"], by("second")));
    installation.expire(second).await;
    assert_eq!(scene.declare(also_third, &["third"]).await, stored(&["third"]), "the one before it waits for the same");
    assert_eq!(scene.declare(third, &["third"]).await, stored(&["third"]));
}

async fn declare_waits_for_ranges_that_nobody_works_on(installation: &Installation) {
    let scene = Scene::new(installation, &["old"]).await;
    installation.produce(scene.stream, 20).await;
    let old = scene.process("old", says(&["old"]), 9).await;
    let new = scene.process("new", says(&["new"]), 0).await;
    installation.claim(scene.stream, scene.group, old, 5).await;
    installation.claim(scene.stream, scene.group, new, 5).await;
    installation.expire(old).await;
    let abandoned = held(&["old"], BindingHold::Abandoned);
    assert_eq!(scene.declare(new, &["new"]).await, abandoned);
    let token = LeaseToken::mint();
    let taken = installation.backend.lease_reclaim(scene.stream, scene.group, new, token).await.expect("a look");
    assert!(taken.is_some(), "the range of the old process");
    let back = [ReturnParams { token, done: Vec::new(), exceptions: Vec::new() }];
    installation.backend.lease_return(scene.stream, &back).await.expect("it can be given back");
    assert_eq!(scene.declare(new, &["new"]).await, abandoned);
    installation
        .backend
        .lease_reclaim(scene.stream, scene.group, new, token)
        .await
        .expect("a look")
        .expect("the range");
    assert_eq!(scene.declare(new, &["new"]).await, stored(&["new"]), "its own ranges have their bindings");
}

async fn declare_nothing_only_answers_what_is_stored(installation: &Installation) {
    let scene = Scene::new(installation, &["b", "a"]).await;
    let new = scene.process("new", says(&["new"]), 0).await;
    for presence in [Some(new), None] {
        let row = installation.backend.binding_declare(&scene.params(presence, None)).await.expect("an answer");
        assert_eq!(row, stored(&["a", "b"]));
    }
    assert_eq!(scene.stored().await, ["a", "b"]);
}

async fn declare_from_many_processes_stores_one_set(installation: &Installation) {
    let scene = Scene::new(installation, &["old"]).await;
    let barrier = Arc::new(Barrier::new(8));
    let mut declaring = tokio::task::JoinSet::new();
    for number in 0..8u64 {
        let name = format!("set-{number}");
        let presence = scene.process(&name, says(&[&name]), 100 - number).await;
        let params = scene.params(presence, Some(&[&name]));
        let (backend, barrier) = (installation.another().await, Arc::clone(&barrier));
        declaring.spawn(async move {
            barrier.wait().await;
            backend.binding_declare(&params).await.expect("an answer")
        });
    }
    let rows = declaring.join_all().await;
    assert_eq!(rows.iter().filter(|row| row.hold.is_none()).count(), 1);
    assert_eq!(scene.stored().await, ["set-0"], "that of the one that began first");
}

async fn declare_for_a_group_that_is_gone_is_refused(installation: &Installation) {
    let scene = Scene::new(installation, &["old"]).await;
    let params = BindingParams { group: GroupId(77), ..scene.params(None, Some(&["new"])) };
    assert_eq!(code(installation.backend.binding_declare(&params).await), "SQLS-0320");
    assert_eq!(scene.stored().await, ["old"]);
}

async fn declare_at_registration_keeps_the_stored_ones_too(installation: &Installation) {
    let scene = Scene::new(installation, &["old"]).await;
    let old = scene.process("old", says(&["old"]), 9).await;
    let new = scene.process("new", says(&["new"]), 0).await;
    let params = GroupParams { bindings: set(&["new"]), presence: Some(new), ..group_params(scene.stream, "readers") };
    let row = installation.backend.group_register(&params).await.expect("the group");
    assert_eq!((row.registered, row.bindings), (Registered::Joined, held(&["old"], by("old"))));
    let params = GroupParams { retry: r#"{"retries":6}"#.to_owned(), ..params };
    let row = installation.backend.group_register(&params).await.expect("the group");
    assert_eq!((row.registered, row.bindings), (Registered::Updated, held(&["old"], by("old"))), "numbers do not wait");
    installation.expire(old).await;
    let row = installation.backend.group_register(&params).await.expect("the group");
    assert_eq!((row.registered, row.bindings), (Registered::Updated, stored(&["new"])));
}
