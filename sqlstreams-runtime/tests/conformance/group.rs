//! Consumer groups: `group_register`.

use std::time::Duration;

use sqlstreams_runtime::Timestamp;
use sqlstreams_runtime::backend::{GroupParams, Registered, StartParams};
use sqlstreams_runtime::identity::{GroupId, MessageId, StreamId};

use crate::harness::{Installation, code, group_params, on_both};

on_both! {
    register_tells_created_joined_and_updated,
    register_starts_where_it_is_told,
    register_starts_at_a_time,
    register_reads_the_start_of_a_new_group_only,
    register_replaces_numbers,
    register_replaces_bindings,
    register_shows_another_key_policy_and_changes_nothing,
    register_keeps_the_same_name_on_two_streams_apart,
    register_from_eight_processes_makes_one_group,
    register_for_a_stream_that_is_missing_is_refused,
}

async fn register_tells_created_joined_and_updated(installation: &Installation) {
    let stream = installation.stream("events").await;
    let params = group_params(stream, "readers");
    let first = installation.backend.group_register(&params).await.expect("a group");
    assert_eq!((first.registered, first.key_policy.as_str()), (Registered::Created, "parallel"));
    let other = installation.another().await;
    for backend in [&installation.backend, &other] {
        let again = backend.group_register(&params).await.expect("the group");
        assert_eq!((again.id, again.registered), (first.id, Registered::Joined));
    }
    let changes = [
        GroupParams { retry: r#"{"retries":6}"#.to_owned(), ..params.clone() },
        GroupParams { timeout: Duration::from_millis(1), ..params.clone() },
        GroupParams { delivery_log: "failures", ..params.clone() },
        GroupParams { bindings: vec!["a.*".to_owned()], ..params.clone() },
        params.clone(),
    ];
    for changed in changes {
        let row = installation.backend.group_register(&changed).await.expect("the group");
        assert_eq!((row.id, row.registered), (first.id, Registered::Updated), "{changed:?}");
        let row = installation.backend.group_register(&changed).await.expect("the group");
        assert_eq!((row.id, row.registered), (first.id, Registered::Joined), "{changed:?}");
    }
}

async fn start(installation: &Installation, stream: StreamId, name: &str, start: StartParams) -> (GroupId, i64) {
    let params = GroupParams { start, ..group_params(stream, name) };
    let group = installation.backend.group_register(&params).await.expect("a group").id;
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!(position.claimed, position.settled);
    (group, position.claimed)
}

async fn register_starts_where_it_is_told(installation: &Installation) {
    let stream = installation.stream("events").await;
    assert_eq!(start(installation, stream, "early-head", StartParams::Head).await.1, 0, "nothing was ever produced");
    installation.produce(stream, 10).await;
    let cases = [
        (StartParams::Beginning, 0),
        (StartParams::Head, 10),
        (StartParams::Id(MessageId(1)), 0),
        (StartParams::Id(MessageId(4)), 3),
        (StartParams::Id(MessageId(0)), 0),
        (StartParams::Id(MessageId(100)), 99),
    ];
    let presence = installation.presence().await;
    for (number, (at, claimed)) in cases.into_iter().enumerate() {
        let (group, found) = start(installation, stream, &format!("group-{number}"), at).await;
        assert_eq!(found, claimed, "{at:?}");
        if claimed < 10 {
            assert_eq!(installation.claim(stream, group, presence, 1).await.1.high, claimed + 1, "{at:?}");
        }
    }
    // A log that retention emptied goes on where it was.
    installation.execute(&format!("delete from {}", installation.table_of("message_log", stream))).await;
    assert_eq!(start(installation, stream, "late-head", StartParams::Head).await.1, 10);
    let (group, _) = start(installation, stream, "later-head", StartParams::Head).await;
    assert_eq!(installation.produce(stream, 1).await, [MessageId(11)]);
    assert_eq!(installation.claim(stream, group, presence, 5).await.1.high, 11);
}

async fn register_starts_at_a_time(installation: &Installation) {
    let stream = installation.stream("events").await;
    installation.produce(stream, 4).await;
    const SECOND: i64 = 1_000_000;
    const FIRST: i64 = 1_700_000_000 * SECOND;
    for id in 1..=4 {
        let at = FIRST + id * SECOND;
        let at = if installation.is_postgres() { format!("to_timestamp({at} / 1000000.0)") } else { at.to_string() };
        let log = installation.table_of("message_log", stream);
        installation.execute(&format!("update {log} set created_at = {at} where id = {id}")).await;
    }
    let cases = [
        (0, 0),
        (FIRST + SECOND, 0),
        (FIRST + SECOND + 1, 1),
        (FIRST + 3 * SECOND, 2),
        (FIRST + 4 * SECOND, 3),
        (FIRST + 4 * SECOND + 1, 4),
        (i64::from(i32::MAX) * SECOND, 4),
    ];
    for (number, (time, claimed)) in cases.into_iter().enumerate() {
        let at = StartParams::Time(Timestamp(time));
        assert_eq!(start(installation, stream, &format!("group-{number}"), at).await.1, claimed, "{at:?}");
    }
}

async fn register_reads_the_start_of_a_new_group_only(installation: &Installation) {
    let stream = installation.stream("events").await;
    installation.produce(stream, 10).await;
    let (group, claimed) = start(installation, stream, "readers", StartParams::Id(MessageId(5))).await;
    assert_eq!(claimed, 4);
    let presence = installation.presence().await;
    installation.claim(stream, group, presence, 3).await;
    for at in [StartParams::Beginning, StartParams::Head, StartParams::Id(MessageId(2))] {
        let params = GroupParams { start: at, ..group_params(stream, "readers") };
        let row = installation.backend.group_register(&params).await.expect("the group");
        assert_eq!((row.id, row.registered), (group, Registered::Joined));
        let position = installation.backend.cursor_position(stream, group).await.expect("a position");
        assert_eq!(position.claimed, 7, "{at:?}");
    }
}

async fn register_replaces_numbers(installation: &Installation) {
    let stream = installation.stream("events").await;
    let params = group_params(stream, "readers");
    installation.backend.group_register(&params).await.expect("a group");
    installation.group(stream, "others").await;
    let newer = GroupParams { retry: r#"{"retries": 9}"#.to_owned(), timeout: Duration::from_micros(7), ..params };
    installation.backend.group_register(&newer).await.expect("the group");
    let groups = installation.table("consumer_group_config");
    let stored =
        installation.texts(&format!("select name || ' ' || retry || ' ' || timeout_us from {groups} order by 1")).await;
    assert_eq!(stored, [r#"others {"retries":5} 30000000"#, r#"readers {"retries": 9} 7"#]);
}

async fn register_replaces_bindings(installation: &Installation) {
    let stream = installation.stream("events").await;
    let other = GroupParams { bindings: vec!["kept.*".to_owned()], ..group_params(stream, "others") };
    installation.backend.group_register(&other).await.expect("another group");
    let bound = |patterns: &[&str]| GroupParams {
        bindings: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
        ..group_params(stream, "readers")
    };
    let group = installation.backend.group_register(&bound(&[])).await.expect("a group").id;
    let bindings = installation.table_of("binding_config", stream);
    let steps: [(&[&str], Registered); 7] = [
        (&["b.*", "a.**"], Registered::Updated),
        (&["a.**", "b.*"], Registered::Joined),
        (&["a.**"], Registered::Updated),
        (&["c", "d", "a.**"], Registered::Updated),
        (&["it's \"{quoted}\", \\"], Registered::Updated),
        (&[], Registered::Updated),
        (&[], Registered::Joined),
    ];
    for (patterns, expected) in steps {
        let row = installation.backend.group_register(&bound(patterns)).await.expect("the group");
        assert_eq!((row.id, row.registered), (group, expected), "{patterns:?}");
        let query = format!("select pattern from {bindings} where consumer_group_id = {group}");
        let mut stored = installation.texts(&query).await;
        let mut patterns = patterns.to_vec();
        stored.sort();
        patterns.sort_unstable();
        assert_eq!(stored, patterns);
    }
    let kept = installation.texts(&format!("select pattern from {bindings}")).await;
    assert_eq!(kept, ["kept.*"], "another group's bindings stay");
}

async fn register_shows_another_key_policy_and_changes_nothing(installation: &Installation) {
    let stream = installation.stream("events").await;
    installation.produce(stream, 3).await;
    let stored = GroupParams { key_policy: "ordered", ..group_params(stream, "readers") };
    let group = installation.backend.group_register(&stored).await.expect("a group").id;
    for policy in ["parallel", "exclusive"] {
        let declared = GroupParams {
            key_policy: policy,
            retry: "{}".to_owned(),
            bindings: vec!["a".to_owned()],
            start: StartParams::Head,
            ..stored.clone()
        };
        let row = installation.backend.group_register(&declared).await.expect("an answer");
        assert_eq!((row.id, row.key_policy.as_str(), row.registered), (group, "ordered", Registered::Joined));
    }
    let groups = installation.table("consumer_group_config");
    let kept = installation.texts(&format!("select key_policy || ' ' || retry from {groups}")).await;
    assert_eq!(kept, [r#"ordered {"retries":5}"#]);
    assert_eq!(installation.count(&installation.table_of("binding_config", stream)).await, 0);
    let position = installation.backend.cursor_position(stream, group).await.expect("a position");
    assert_eq!(position.claimed, 0);
    let again = installation.backend.group_register(&stored).await.expect("the group");
    assert_eq!(again.registered, Registered::Joined);
}

async fn register_keeps_the_same_name_on_two_streams_apart(installation: &Installation) {
    let (first, second) = (installation.stream("first").await, installation.stream("second").await);
    let (one, two) = (installation.group(first, "readers").await, installation.group(second, "readers").await);
    assert_ne!(one, two);
    assert_eq!(code(installation.backend.cursor_position(first, two).await), "SQLS-0302");
    assert_eq!(code(installation.backend.cursor_position(second, one).await), "SQLS-0302");
}

async fn register_from_eight_processes_makes_one_group(installation: &Installation) {
    let stream = installation.stream("events").await;
    for round in 0..5 {
        let mut processes = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let backend = installation.another().await;
            let bindings = vec!["a.*".to_owned(), "b".to_owned()];
            let params = GroupParams { bindings, ..group_params(stream, &format!("readers-{round}")) };
            processes.spawn(async move { backend.group_register(&params).await.expect("a group") });
        }
        let rows = processes.join_all().await;
        assert!(rows.iter().all(|row| row.id == rows[0].id), "everybody got the same group");
        let created = rows.iter().filter(|row| row.registered == Registered::Created).count();
        let joined = rows.iter().filter(|row| row.registered == Registered::Joined).count();
        assert_eq!((created, joined), (1, 7), "one created it, and the others joined");
        let cursors = installation.table_of("consumer_group_cursor", stream);
        let group = rows[0].id;
        let query = format!("select count(*) from {cursors} where consumer_group_id = {group}");
        assert_eq!(installation.number(&query).await, 1);
    }
}

async fn register_for_a_stream_that_is_missing_is_refused(installation: &Installation) {
    let params = group_params(StreamId(77), "readers");
    let refused = installation.backend.group_register(&params).await;
    assert!(["SQLS-0115", "SQLS-0198"].contains(&code(refused)));
    assert_eq!(installation.count(&installation.table("consumer_group_config")).await, 0, "nothing was stored");
}
