//! The log: `message_produce` and `message_read`.

use std::collections::HashSet;

use sqlstreams_runtime::backend::{FirstRow, ProducedRow, ReadParams};
use sqlstreams_runtime::identity::{MessageId, StreamId};
use sqlstreams_runtime::message::NewMessage;
use sqlstreams_runtime::schema::pattern_matches;

use crate::harness::{self, Installation, code, ids, item, message, on_both, read_params, routed};

mod keyed;

on_both! {
    produce_gives_ids_in_the_order_of_the_messages,
    produce_keeps_every_field_as_it_was,
    produce_keeps_a_large_message,
    produce_appends_all_or_nothing,
    produce_of_nothing_appends_nothing,
    produce_from_many_tasks_keeps_the_order_of_each_batch,
    produce_is_seen_by_another_process_when_it_returns,
    produce_to_tables_that_are_missing_names_the_way_out,
    read_gives_a_range_in_id_order_without_its_low_end,
    read_leaves_out_the_payload_of_versions_that_were_not_asked_for,
    read_of_one_version_leaves_the_others_out,
    read_gives_what_the_bindings_match,
    read_gives_bytes_that_another_program_wrote,
    produce_with_a_key_answers_the_first_id_for_the_same_payload_and_refuses_another,
}

async fn produce_gives_ids_in_the_order_of_the_messages(installation: &Installation) {
    let stream = installation.stream("events").await;
    let produced = installation.produce(stream, 1000).await;
    assert_eq!(produced.len(), 1000);
    assert!(produced.is_sorted_by(|a, b| a < b), "the ids rise");
    let stored = installation.read(stream, 0, i64::MAX).await;
    assert_eq!(ids(&stored), produced.iter().map(|id| id.0).collect::<Vec<_>>());
    for (number, stored) in stored.iter().enumerate() {
        assert_eq!(stored.payload.as_deref(), Some(message(number).payload.as_bytes()), "message {number}");
    }
    let later = installation.produce(stream, 1).await;
    assert!(later[0] > produced[999], "a later message has a higher id");
}

async fn produce_keeps_every_field_as_it_was(installation: &Installation) {
    let stream = installation.stream("events").await;
    let messages = [
        NewMessage {
            payload: "{\"b\": 1,  \"a\":\"it's \\u00e9 é 🦀 \\\\ \\\"x\\\" {}, $1 \\n\", \"b\":2.50}\n".to_owned(),
            routing_key: Some("orders.eu.größe'\"\\".to_owned()),
            message_key: Some("{key},\"NULL\"".to_owned()),
            headers: Some(r#"{"traceparent": "00-a", "empty": ""}"#.to_owned()),
        },
        NewMessage { payload: "null".to_owned(), routing_key: None, message_key: None, headers: None },
        NewMessage {
            payload: "[]".to_owned(),
            routing_key: Some(String::new()),
            message_key: Some("NULL".to_owned()),
            headers: Some("{}".to_owned()),
        },
    ];
    let before = installation.now().await;
    let produced = installation.backend.message_produce(stream, 3, 7, &messages).await.expect("three messages");
    let after = installation.now().await;
    let params = ReadParams { versions: vec![3], ..read_params(stream, 0, i64::MAX) };
    let stored = installation.backend.message_read(&params).await.expect("three messages");
    assert_eq!(stored.len(), 3);
    for ((id, message), stored) in produced.iter().zip(&messages).zip(&stored) {
        assert_eq!(stored.id, *id);
        assert_eq!((stored.schema_version, stored.codec), (3, 7));
        assert_eq!(stored.payload.as_deref(), Some(message.payload.as_bytes()));
        assert_eq!(stored.routing_key.as_deref(), message.routing_key.as_deref().map(str::as_bytes));
        assert_eq!(stored.message_key.as_deref(), message.message_key.as_deref().map(str::as_bytes));
        assert_eq!(stored.headers.as_deref(), message.headers.as_deref().map(str::as_bytes));
        // SQLite keeps milliseconds.
        assert!((before - 1000..=after + 1000).contains(&stored.created_at.0), "the time of the database");
    }
}

async fn produce_keeps_a_large_message(installation: &Installation) {
    let stream = installation.stream("events").await;
    let large = NewMessage { payload: format!("\"{}\"", "é".repeat(2 << 20)), ..message(0) };
    let batch = [message(1), large.clone(), message(2)];
    installation.backend.message_produce(stream, 1, 0, &batch).await.expect("four megabytes fit");
    let stored = installation.read(stream, 0, i64::MAX).await;
    let payloads: Vec<_> = stored.iter().map(|stored| stored.payload.clone().unwrap_or_default()).collect();
    assert_eq!(payloads, batch.map(|message| message.payload.into_bytes()));
}

/// The database refuses the second of three messages.
async fn produce_appends_all_or_nothing(installation: &Installation) {
    let stream = installation.stream("events").await;
    let log = installation.table_of("message_log", stream);
    if installation.is_postgres() {
        let check = "check (routing_key is distinct from 'refused')";
        installation.execute(&format!("alter table {log} add constraint refusal {check}")).await;
    } else {
        let body = "begin select raise(abort, 'refused'); end";
        let when = "when new.routing_key = 'refused'";
        installation.execute(&format!("create trigger refusal before insert on {log} {when} {body}")).await;
    }
    let batch = [routed("good"), routed("refused"), routed("good")];
    let refused = installation.backend.message_produce(stream, 1, 0, &batch).await;
    assert_eq!(code(refused), "SQLS-0198");
    assert_eq!(installation.count(&log).await, 0, "nothing of the batch is there");
    let next = installation.produce(stream, 2).await;
    assert_eq!(ids(&installation.read(stream, 0, i64::MAX).await), [next[0].0, next[1].0]);
}

#[tokio::test]
async fn produce_with_a_text_that_postgres_cannot_hold_appends_nothing() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    let bad = [
        NewMessage { payload: "{\"a\": }".to_owned(), ..message(0) },
        NewMessage { payload: String::new(), ..message(0) },
        NewMessage { headers: Some("{".to_owned()), ..message(0) },
        routed("a\0b"),
    ];
    for bad in bad {
        let batch = [message(1), bad.clone(), message(2)];
        let refused = installation.backend.message_produce(stream, 1, 0, &batch).await;
        assert_eq!(code(refused), "SQLS-0116", "{bad:?}");
    }
    assert_eq!(installation.count(&installation.table_of("message_log", stream)).await, 0);
}

async fn produce_of_nothing_appends_nothing(installation: &Installation) {
    let stream = installation.stream("events").await;
    let none = installation.backend.message_produce(stream, 1, 0, &[]).await.expect("nothing is no error");
    assert!(none.is_empty());
    assert!(installation.read(stream, 0, i64::MAX).await.is_empty());
}

async fn produce_from_many_tasks_keeps_the_order_of_each_batch(installation: &Installation) {
    const TASKS: usize = 8;
    const BATCH: usize = 50;
    let stream = installation.stream("events").await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let backend = installation.another().await;
        tasks.spawn(async move {
            let mut produced = Vec::new();
            for batch in 0..4 {
                let first = (task * 4 + batch) * BATCH;
                let messages: Vec<_> = (first..first + BATCH).map(message).collect();
                let ids = backend.message_produce(stream, 1, 0, &messages).await.expect("a batch");
                assert!(ids.is_sorted_by(|a, b| a < b), "the ids of a batch rise");
                produced.extend(ids.into_iter().zip(messages));
            }
            produced
        });
    }
    let produced: Vec<(MessageId, NewMessage)> = tasks.join_all().await.into_iter().flatten().collect();
    let distinct: HashSet<MessageId> = produced.iter().map(|(id, _)| *id).collect();
    assert_eq!(distinct.len(), TASKS * 4 * BATCH, "no id is given twice");
    let stored = installation.read(stream, 0, i64::MAX).await;
    assert_eq!(stored.len(), distinct.len());
    for (id, message) in produced {
        let found = stored.iter().find(|stored| stored.id == id).expect("every id is stored");
        assert_eq!(found.payload.as_deref(), Some(message.payload.as_bytes()), "the message with id {id}");
    }
}

async fn produce_is_seen_by_another_process_when_it_returns(installation: &Installation) {
    let stream = installation.stream("events").await;
    let other = installation.another().await;
    for _ in 0..20 {
        let produced = installation.produce(stream, 1).await;
        let params = read_params(stream, produced[0].0 - 1, produced[0].0);
        assert_eq!(ids(&other.message_read(&params).await.expect("a range")), [produced[0].0]);
    }
}

async fn produce_to_tables_that_are_missing_names_the_way_out(installation: &Installation) {
    let refused = installation.backend.message_produce(StreamId(77), 1, 0, &[message(0)]).await;
    assert_eq!(code(refused), "SQLS-0115");
}

async fn read_gives_a_range_in_id_order_without_its_low_end(installation: &Installation) {
    let stream = installation.stream("events").await;
    let produced = installation.produce(stream, 20).await;
    let all: Vec<i64> = produced.iter().map(|id| id.0).collect();
    for (low, high) in [(0, 0), (0, 1), (0, 20), (5, 5), (5, 6), (5, 20), (9, 5), (19, 20), (20, 40), (0, i64::MAX)] {
        let expected: Vec<i64> = all.iter().copied().filter(|id| low < *id && *id <= high).collect();
        assert_eq!(ids(&installation.read(stream, low, high).await), expected, "({low}, {high}]");
    }
}

async fn read_leaves_out_the_payload_of_versions_that_were_not_asked_for(installation: &Installation) {
    let stream = installation.stream("events").await;
    for version in [1, 2, 3, 1] {
        installation.produce_version(stream, version, 2).await;
    }
    for versions in [vec![], vec![1], vec![1, 3], vec![2], vec![9]] {
        let params = ReadParams { versions: versions.clone(), ..read_params(stream, 0, i64::MAX) };
        let stored = installation.backend.message_read(&params).await.expect("a range");
        let seen: Vec<(u32, bool)> = stored.iter().map(|row| (row.schema_version, row.payload.is_some())).collect();
        let asked = |version: u32| versions.contains(&version.cast_signed());
        let expected: Vec<(u32, bool)> =
            [1, 1, 2, 2, 3, 3, 1, 1].into_iter().map(|version| (version, asked(version))).collect();
        assert_eq!(seen, expected, "asked for {versions:?}");
    }
}

async fn read_of_one_version_leaves_the_others_out(installation: &Installation) {
    let stream = installation.stream("events").await;
    for version in [1, 2, 1, 2, 2] {
        installation.produce_version(stream, version, 1).await;
    }
    for (only, expected) in [(1, vec![1, 3]), (2, vec![2, 4, 5]), (3, vec![])] {
        let params = ReadParams { versions: vec![1, 2], only_version: Some(only), ..read_params(stream, 0, i64::MAX) };
        let stored = installation.backend.message_read(&params).await.expect("a range");
        assert_eq!(ids(&stored), expected, "only version {only}");
        assert!(stored.iter().all(|row| row.payload.is_some()));
    }
}

const KEYS: &[&str] = &[
    "orders",
    "orders.eu",
    "orders.eu.created",
    "orders.us.created",
    "orders.eu.created.late",
    "ORDERS.eu.created",
    "xorders.eu",
    "ordersxeu",
    "a+b.c",
    "aab.c",
    "a[b].c",
    "ab.c",
    "a?.c",
    "a|b",
    "(a)",
    "a\\b.c",
    "{a,b}.$1",
    "größe.é",
    "",
];
const PATTERNS: &[&str] = &[
    "orders",
    "orders.*",
    "orders.**",
    "orders.*.created",
    "orders.**.created",
    "*",
    "*.*",
    "**",
    "**.created",
    "**.**",
    "*.**",
    "**.eu.**",
    "a+b.*",
    "a[b].*",
    "a?.c",
    "a|b",
    "(a)",
    "a\\b.*",
    "{a,b}.$1",
    "größe.*",
    "none.of.them",
];

async fn read_gives_what_the_bindings_match(installation: &Installation) {
    let stream = installation.stream("events").await;
    let mut messages: Vec<NewMessage> = KEYS.iter().map(|key| routed(key)).collect();
    messages.push(message(0));
    installation.backend.message_produce(stream, 1, 0, &messages).await.expect("messages with keys");
    let mut sets: Vec<Vec<&str>> = PATTERNS.iter().map(|pattern| vec![*pattern]).collect();
    sets.extend(PATTERNS.windows(2).map(<[&str]>::to_vec));
    for set in sets {
        let bindings: Vec<String> = set.iter().map(|pattern| (*pattern).to_owned()).collect();
        let params = ReadParams { bindings, ..read_params(stream, 0, i64::MAX) };
        let stored = installation.backend.message_read(&params).await.expect("a range");
        let keys: Vec<&str> = stored
            .iter()
            .map(|row| std::str::from_utf8(row.routing_key.as_deref().expect("a bound row has a key")).expect("text"))
            .collect();
        let expected: Vec<&str> =
            KEYS.iter().copied().filter(|key| set.iter().any(|pattern| pattern_matches(pattern, key))).collect();
        assert_eq!(keys, expected, "bound to {set:?}");
    }
    assert_eq!(installation.read(stream, 0, i64::MAX).await.len(), KEYS.len() + 1, "no binding is the whole stream");
}

async fn read_gives_bytes_that_another_program_wrote(installation: &Installation) {
    let stream = installation.stream("events").await;
    let log = installation.table_of("message_log", stream);
    let bytes = if installation.is_postgres() { r"'\x00ff07'" } else { "x'00ff07'" };
    let columns = "(schema_version, codec, payload_bytes)";
    installation.execute(&format!("insert into {log} {columns} values (1, 3, {bytes})")).await;
    let stored = installation.read(stream, 0, i64::MAX).await;
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].codec, 3);
    assert_eq!(stored[0].payload.as_deref(), Some(&[0, 255, 7][..]));
}

/// A server that ends each connection before it says a word.
#[tokio::test]
async fn produce_without_a_connection_is_known_to_have_stored_nothing() {
    use sqlstreams_runtime::backend::postgres::PostgresBackend;
    use sqlstreams_runtime::{Kind, backend::Backend};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let hanging_up = tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    let pool = sqlx::postgres::PgPoolOptions::new().acquire_timeout(harness::PATIENCE);
    let pool = pool.connect_lazy(&format!("postgres://nobody@127.0.0.1:{port}/nothing")).expect("a pool");
    let backend = PostgresBackend::new(pool, harness::SCHEMA).expect("a backend");
    let err = backend.message_produce(StreamId(1), 1, 0, &[message(0)]).await.expect_err("there is no server");
    assert_eq!((err.kind(), err.outcome_known()), (Kind::Unavailable, true), "{err:?}");
    let err = backend.partition_ensure(StreamId(1)).await.expect_err("there is no server");
    assert_eq!((err.kind(), err.outcome_known()), (Kind::Unavailable, true), "{err:?}");
    hanging_up.abort();
}

async fn produce_with_a_key_answers_the_first_id_for_the_same_payload_and_refuses_another(installation: &Installation) {
    let stream = installation.stream("events").await;
    let [ProducedRow::Message(first)] = installation.produce_with(stream, &[item(Some(1), 7)]).await[..] else {
        panic!("a new key stores its message");
    };
    let other = installation.another().await;
    for _ in 0..3 {
        let again = [item(Some(1), 7)];
        let again = other.message_produce_with(&harness::produce_with(stream, &again)).await.expect("an answer");
        assert_eq!(again, [ProducedRow::Duplicate(FirstRow::Message(first))]);
        let differs = installation.produce_with(stream, &[item(Some(1), 8)]).await;
        let payload = Some(message(7).payload.into());
        assert_eq!(differs, [ProducedRow::Conflict { first: FirstRow::Message(first), payload }]);
    }
    let stored = installation.read(stream, 0, i64::MAX).await;
    assert_eq!(ids(&stored), [first.0]);
    assert_eq!(stored[0].payload.as_deref(), Some(message(7).payload.as_bytes()));
    assert_eq!(stored[0].scheduled_at, None);
}
