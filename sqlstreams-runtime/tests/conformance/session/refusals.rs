//! A message that can't be produced is refused before anything is sent, with its place and without its values.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlstreams_runtime::{Error, Headers, Kind, ProduceOptions, Producer, Recovery, Stream};
use tracing::subscriber;

use super::recorder::Recorder;
use super::world::{Engine, Order, World, on_both_databases, plain_stream};

on_both_databases! {
    #[tokio::test]
    a_payload_that_is_too_large_is_refused_with_its_size
    a_map_whose_keys_are_no_texts_is_refused
    u0000_is_refused_with_its_path
    half_a_surrogate_pair_is_refused
    a_payload_of_nothing_is_refused
    a_value_that_can_not_stand_in_the_routing_key_is_refused_with_its_field
    a_key_that_no_index_takes_is_refused
    a_bad_message_in_a_batch_is_named_by_its_place_and_nothing_is_stored
    a_refusal_leaves_the_transaction_usable
}

const SECRET: &str = "hunter2";

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Pairs {
    by_pair: BTreeMap<(u32, String), u32>,
}
plain_stream!(Pairs, "pairs", 1);

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Line {
    note: String,
    more: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Bill {
    lines: Vec<Line>,
    #[schemars(with = "serde_json::Value")]
    raw: Box<RawValue>,
}
plain_stream!(Bill, "bills", 1);

impl Bill {
    fn new(raw: &str) -> Self {
        Self { lines: Vec::new(), raw: RawValue::from_string(raw.to_owned()).expect("the text is JSON") }
    }

    fn of(note: &str, name: &str, value: &str) -> Self {
        let line = |note: &str, more| Line { note: note.to_owned(), more };
        let more = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        Self { lines: vec![line(SECRET, BTreeMap::new()), line(note, more)], ..Self::new("0") }
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Nothing;
plain_stream!(Nothing, "nothings", 1);

/// Watches a producer while it refuses.
struct Watch {
    recorder: Recorder,
    _recording: subscriber::DefaultGuard,
}

impl Watch {
    fn new() -> Self {
        let recorder = Recorder::default();
        Self { _recording: subscriber::set_default(recorder.clone()), recorder }
    }

    /// The text of a refusal, for which nothing was sent.
    fn refused<T: std::fmt::Debug>(&self, code: &str, result: Result<T, Error>) -> String {
        let err = result.expect_err("the message is refused");
        assert_eq!(err.code(), code, "{err}");
        assert_eq!((err.kind(), err.recovery()), (Kind::Message, Recovery::Permanent));
        assert!(err.outcome_known());
        assert!(!format!("{err} {err:?}").contains(SECRET), "{err:?}");
        assert_eq!(self.recorder.count("message.produce"), 0, "something was sent");
        err.to_string()
    }
}

async fn producer<Db: Engine, S: Stream>() -> (World<Db>, Producer<S, Db>, Watch) {
    let world = World::<Db>::new().await;
    let producer = world.producer::<S>().await;
    (world, producer, Watch::new())
}

async fn a_payload_that_is_too_large_is_refused_with_its_size<Db: Engine>() {
    let (world, orders, watch) = producer::<Db, Order>().await;
    let large = Order { note: format!("{SECRET}{}", "x".repeat(16 * 1024 * 1024)), ..Order::new(1) };
    let text = watch.refused("SQLS-0204", orders.produce(&large).await);
    assert!(text.contains("\"orders\"") && text.contains("at most 16777216"), "{text}");
    let size: usize = text.split(' ').filter_map(|word| word.parse().ok()).next().expect("the text has the size");
    assert!(size > large.note.len(), "{text}");
    // What is just small enough passes.
    let fitting = Order { note: "x".repeat(16 * 1024 * 1024 - 200), ..Order::new(1) };
    orders.produce(&fitting).await.expect("a payload below the limit can be produced");
    assert_eq!(world.number("select count(*) from {}message_log_1").await, 1);
}

async fn a_map_whose_keys_are_no_texts_is_refused<Db: Engine>() {
    let (world, pairs, watch) = producer::<Db, Pairs>().await;
    let payload = Pairs { by_pair: BTreeMap::from([((1, SECRET.to_owned()), 2)]) };
    let text = watch.refused("SQLS-0201", pairs.produce(&payload).await);
    assert!(text.contains("\"pairs\"") && text.contains("a map needs text keys"), "{text}");
    assert_eq!(world.number("select count(*) from {}message_log_1").await, 0);
}

async fn u0000_is_refused_with_its_path<Db: Engine>() {
    let (world, bills, watch) = producer::<Db, Bill>().await;
    let refused = async |bill: &Bill| watch.refused("SQLS-0209", bills.produce(bill).await);
    let text = refused(&Bill::of(&format!("{SECRET}\0"), "a", "b")).await;
    assert!(text.contains("`lines[1].note` holds U+0000"), "{text}");
    let text = refused(&Bill::of("", "deep", "\0hunter2")).await;
    assert!(text.contains("`lines[1].more.deep` holds U+0000"), "{text}");
    let text = refused(&Bill::of("", "hunter2\0", "")).await;
    assert!(text.contains("a field's name"), "{text}");
    let text = refused(&Bill::new(r#"["hunter2", "\u0000"]"#)).await;
    assert!(text.contains("`raw[1]` holds U+0000"), "{text}");

    let headers = Headers::from([("trace".to_owned(), format!("{SECRET}\0"))]);
    let text =
        watch.refused("SQLS-0209", bills.produce_with(&Bill::new("0"), ProduceOptions::new().headers(headers)).await);
    assert!(text.contains("`trace` holds U+0000"), "{text}");
    assert!(text.starts_with("the headers for stream") && !text.contains("payload"), "{text}");
    // Its escape is an ordinary text.
    bills.produce(&Bill::of(r"\u0000", "\u{1}", "\u{2028}")).await.expect("an escaped escape can be produced");
    assert_eq!(world.number("select count(*) from {}message_log_1").await, 1);
}

async fn half_a_surrogate_pair_is_refused<Db: Engine>() {
    let (_world, bills, watch) = producer::<Db, Bill>().await;
    for raw in [r#""hunter2\ud83d""#, r#"{"a": ["\udc00"]}"#, r#""\ud83d\u0041""#] {
        let text = watch.refused("SQLS-0208", bills.produce(&Bill::new(raw)).await);
        assert!(text.contains("\"bills\"") && text.contains("surrogate"), "{text}");
    }
    bills.produce(&Bill::new(r#""\ud83d\ude00""#)).await.expect("a whole pair can be produced");
}

async fn a_payload_of_nothing_is_refused<Db: Engine>() {
    let (_world, nothings, watch) = producer::<Db, Nothing>().await;
    let text = watch.refused("SQLS-0202", nothings.produce(&Nothing).await);
    assert!(text.contains("JSON null"), "{text}");
}

async fn a_value_that_can_not_stand_in_the_routing_key_is_refused_with_its_field<Db: Engine>() {
    let (world, orders, watch) = producer::<Db, Order>().await;
    let long = SECRET.repeat(20);
    let values = [
        ("", "at least one"),
        ("hunter2.x", "`.`"),
        ("hunter2*", "`*`"),
        ("hunter2 ", "white space"),
        (&*long, "100 bytes"),
    ];
    for (value, rule) in values {
        for (field, order) in [("region", Order::of(1, value, "created")), ("kind", Order::of(1, "eu", value))] {
            let text = watch.refused("SQLS-0203", orders.produce(&order).await);
            assert!(text.contains(&format!("field `{field}`")) && text.contains("\"orders\""), "{text}");
            assert!(text.contains(rule), "{text}");
        }
    }
    assert_eq!(world.number("select count(*) from {}message_log_1").await, 0);
}

async fn a_key_that_no_index_takes_is_refused<Db: Engine>() {
    let (_world, keyed, watch) = producer::<Db, Keyed>().await;
    let text = watch.refused("SQLS-0207", keyed.produce(&Keyed { key: SECRET.repeat(150) }).await);
    assert!(text.contains("message key") && text.contains("1050 bytes"), "{text}");
    keyed.produce(&Keyed { key: "x".repeat(1000) }).await.expect("a key of 1000 bytes can be produced");
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Keyed {
    key: String,
}

impl Stream for Keyed {
    const NAME: &'static str = "keyed";
    const VERSION: u32 = 1;
    const ROUTE: sqlstreams_runtime::schema::Route = sqlstreams_runtime::schema::Route::NONE;
    const KEY: Option<&'static str> = Some("key");

    fn routing_key(&self) -> Result<Option<String>, sqlstreams_runtime::SegmentError> {
        Ok(None)
    }
    fn message_key(&self) -> Option<String> {
        Some(self.key.clone())
    }
}

async fn a_bad_message_in_a_batch_is_named_by_its_place_and_nothing_is_stored<Db: Engine>() {
    let (world, orders, watch) = producer::<Db, Order>().await;
    let batch = [Order::new(0), Order::new(1), Order { note: format!("{SECRET}\0"), ..Order::new(2) }, Order::new(3)];
    let text = watch.refused("SQLS-0209", orders.produce_batch(&batch).await);
    assert!(text.starts_with("payload 2 of the batch: "), "{text}");
    let mut tx = Db::begin(world.client.pool()).await;
    let text = watch.refused("SQLS-0209", orders.produce_batch_in(&mut tx, &batch).await);
    assert!(text.starts_with("payload 2 of the batch: "), "{text}");
    tx.commit().await.expect("the transaction can be committed");
    assert_eq!(world.number("select count(*) from {}message_log_1").await, 0);
}

async fn a_refusal_leaves_the_transaction_usable<Db: Engine>() {
    let (world, orders, watch) = producer::<Db, Order>().await;
    let mut tx = Db::begin(world.client.pool()).await;
    watch.refused("SQLS-0203", orders.produce_in(&mut tx, &Order::of(1, "hunter2.x", "created")).await);
    orders.produce_in(&mut tx, &Order::new(2)).await.expect("an order can be produced");
    tx.commit().await.expect("the transaction can be committed");
    assert_eq!(world.numbers("select id from {}message_log_1").await.len(), 1);
}
