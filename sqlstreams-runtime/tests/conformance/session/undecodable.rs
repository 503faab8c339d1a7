//! A row whose payload does not decode dies with the place and the rule, and holds nobody.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams_runtime::Outcome;
use tokio::sync::mpsc::unbounded_channel;

use super::world::{Engine, World, group, on_both_databases, plain_stream, quick, soon, start};

on_both_databases! {
    a_payload_that_does_not_decode_dies_with_the_path_and_the_rule_and_its_neighbours_flow
    a_codec_that_this_build_lacks_is_named
    a_maps_keys_are_payload_and_not_shown
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Line {
    count: u32,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Region {
    Eu,
    Us,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Bill {
    number: u32,
    region: Region,
    lines: Vec<Line>,
}
plain_stream!(Bill, "bills", 1);
group!(Readers, Bill, "readers", retry: quick(3));

const SECRET: &str = "hunter2";

/// Inserts a row as another program might, which knows nothing of the payload's shape.
async fn insert<Db: Engine>(world: &World<Db>, payload: &str) {
    let statement = match Db::KIND {
        "postgres" => format!("select sqlstreams.produce('bills', '{payload}')"),
        _ => format!("insert into {{}}message_log_1 (schema_version, codec, payload) values (1, 0, '{payload}')"),
    };
    // A brace of the payload is no place for a table's name.
    Db::execute(world.client.pool(), statement.replacen("{}message", &format!("{}message", Db::TABLES), 1)).await;
}

fn bill(number: u32) -> Bill {
    Bill {
        number,
        region: if number.is_multiple_of(2) { Region::Eu } else { Region::Us },
        lines: vec![Line { count: 1 }],
    }
}

async fn a_payload_that_does_not_decode_dies_with_the_path_and_the_rule_and_its_neighbours_flow<Db: Engine>() {
    let world = World::<Db>::new().await;
    let bills = world.producer::<Bill>().await;
    let mut bad = vec![
        (r#"{"number": "hunter2", "region": "eu", "lines": []}"#, "`number`: invalid type, expected u32"),
        (
            r#"{"number": 1, "region": "eu", "lines": [{"count": 1}, {"count": "hunter2"}]}"#,
            "`lines[1].count`: invalid type, expected u32",
        ),
        (r#"{"number": 1, "region": "hunter2", "lines": []}"#, "`region`: unknown variant, expected `eu` or `us`"),
        (r#"{"number": 1, "region": "eu"}"#, "the payload does not decode: missing field `lines`"),
        (r#"{"number": -5, "region": "eu", "lines": []}"#, "`number`: invalid value, expected u32"),
        (r#"["hunter2"]"#, "`[0]`: invalid type, expected u32"),
        (r#""hunter2""#, "the payload does not decode: invalid type, expected struct Bill"),
    ];
    if Db::KIND == "sqlite" {
        // Postgres takes only JSON.
        bad.push((r#"{"number": hunter2}"#, "not valid JSON, at line 1 column 12"));
    }
    let mut ids = Vec::new();
    for (at, (payload, _)) in bad.iter().enumerate() {
        ids.push(bills.produce(&bill(at as u32)).await.expect("a bill can be produced"));
        insert(&world, payload).await;
    }
    ids.push(bills.produce(&bill(bad.len() as u32)).await.expect("a bill can be produced"));

    let (sender, mut handled) = unbounded_channel();
    let consumer = world.client.consumer().group_fn::<Readers, _, _>(move |bill, delivery| {
        let _ = sender.send((delivery.message_id(), bill.number, bill.lines.len()));
        async { Ok(Outcome::Done) }
    });
    let running = start(consumer.concurrency(1));
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(soon("a bill", handled.recv()).await, Some((*id, number as u32, 1)));
    }
    let count = bad.len() as i64;
    let position = world.settled::<Readers>().await;
    assert_eq!((position.dead, position.ready, position.inflight), (count, 0, 0));
    let dead = world.letters::<Readers>().await;
    for (letter, (payload, rule)) in dead.iter().zip(&bad) {
        assert!(letter.error.contains(rule), "{:?} for {payload}", letter.error);
        assert!(!letter.error.contains(SECRET) && !letter.error.contains("-5"), "{}", letter.error);
        assert_eq!(letter.attempts, 1);
    }
    let summary = &running.stop().await[0];
    assert_eq!((summary.done, summary.dead, summary.retried), (ids.len() as u64, count as u64, 0));
}

async fn a_codec_that_this_build_lacks_is_named<Db: Engine>() {
    let world = World::<Db>::new().await;
    let bills = world.producer::<Bill>().await;
    bills.produce_batch(&[bill(1), bill(2)]).await.expect("bills can be produced");
    let bytes = if Db::KIND == "postgres" { "'\\x0123'" } else { "x'0123'" };
    let set = format!("codec = 7, payload = null, payload_bytes = {bytes}");
    world
        .execute(&format!("update {{}}message_log_1 set {set} where id = (select min(id) from {{}}message_log_1)"))
        .await;
    let consumer = world.client.consumer().group_fn::<Readers, _, _>(|_, _| async { Ok(Outcome::Done) });
    let running = start(consumer);
    let position = world.settled::<Readers>().await;
    assert_eq!(position.dead, 1);
    let dead = world.letters::<Readers>().await;
    assert_eq!(dead[0].error, "this build has no codec with the number 7");
    assert_eq!(running.stop().await[0].done, 1);
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Limits {
    limit: u32,
    by_user: HashMap<String, Vec<Line>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
enum Change {
    Raised(Limits),
    Named { user: HashMap<String, u32> },
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Account {
    limits: Option<HashMap<String, Limits>>,
    change: Option<Box<Change>>,
    parent: Option<Box<Account>>,
}
plain_stream!(Account, "bills", 1);
group!(Accounts, Account, "accounts", retry: quick(0));

async fn a_maps_keys_are_payload_and_not_shown<Db: Engine>() {
    let world = World::<Db>::new().await;
    let accounts = world.producer::<Account>().await;
    let bad = [
        (r#"{"limits": {"hunter2": {"limit": "x", "by_user": {}}}}"#, "`limits.*.limit`: invalid type, expected u32"),
        (
            r#"{"limits": {"hunter2": {"limit": 1, "by_user": {"hunter2": [{"count": 1}, {"count": true}]}}}}"#,
            "`limits.*.by_user.*[1].count`: invalid type, expected u32",
        ),
        // A key that is called as a field elsewhere is a key.
        (r#"{"limits": {"change": 7}}"#, "`limits.*`: invalid type, expected struct Limits"),
        (
            r#"{"change": {"Raised": {"limit": 1, "by_user": {"limit": 7}}}}"#,
            "`change.Raised.by_user.*`: invalid type, expected a sequence",
        ),
        (r#"{"change": {"Named": {"user": {"hunter2": "x"}}}}"#, "`change.Named.user.*`: invalid type, expected u32"),
        (r#"{"change": {"hunter2": 1}}"#, "unknown variant, expected `Raised` or `Named`"),
        (r#"{"parent": {"parent": {"limits": {"hunter2": 7}}}}"#, "`parent.parent.limits.*`: invalid type"),
    ];
    for (payload, _) in &bad {
        insert(&world, payload).await;
    }
    accounts.produce(&Account { limits: None, change: None, parent: None }).await.expect("an account can be produced");
    let consumer = world.client.consumer().group_fn::<Accounts, _, _>(|_, _| async { Ok(Outcome::Done) });
    let running = start(consumer);
    assert_eq!(world.settled::<Accounts>().await.dead, bad.len() as i64);
    for (letter, (payload, rule)) in world.letters::<Accounts>().await.iter().zip(&bad) {
        assert!(letter.error.contains(rule), "{:?} for {payload}", letter.error);
        assert!(!letter.error.contains(SECRET), "{}", letter.error);
    }
    running.stop().await;
}
