//! What people do with dead letters through a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams_runtime::dead_letters::DeadLetters;
use sqlstreams_runtime::{DeadLetterFilter, DiscardScope, MessageId, Outcome, TroubleStatus};
use tokio::sync::Notify;

use super::world::{
    All, Engine, Order, World, deciding, group, numbers, on_both_databases, plain_stream, quick, soon, start, take,
};

on_both_databases! {
    dead_letters_are_listed_in_pages
    letters_are_redriven_after_the_cause_is_mended_and_handled
    a_redriven_letter_runs_at_once_in_the_same_process
    a_letter_that_fails_again_is_dead_again_with_its_whole_history
    a_dry_run_says_what_a_redrive_would_do_and_does_nothing
    ten_thousand_letters_are_redriven_in_seconds
    a_letter_is_inspected_with_its_payload_which_nothing_shows
    a_payload_that_can_not_be_decoded_says_why
    discarded_messages_are_gone_for_the_group_only
    a_discarded_message_that_runs_is_not_recorded
}

group!(Once, Order, "once", retry: quick(0));
group!(Others, Order, "others");

async fn letters<Db: Engine, G: sqlstreams_runtime::Group>(world: &World<Db>) -> DeadLetters<G> {
    world.client.dead_letters::<G>().await.expect("a group can be registered")
}

/// Orders 0 to `count`, all dead in `Once`: the odd ones with "odd", the others with "even".
async fn dead<Db: Engine>(world: &World<Db>, count: u64) -> Vec<MessageId> {
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..count)).await.expect("a batch can be produced");
    let (consumer, _calls) = deciding::<Once>(world.client.consumer(), |order, _| {
        Err(if order.number.is_multiple_of(2) { "even" } else { "odd" }.into())
    });
    let running = start(consumer);
    assert_eq!(world.settled::<Once>().await.dead, count as i64);
    running.stop().await;
    ids
}

async fn dead_letters_are_listed_in_pages<Db: Engine>() {
    let world = World::<Db>::new().await;
    let ids = dead(&world, 7).await;
    let letters = letters::<Db, Once>(&world).await;
    let (mut pages, mut after) = (Vec::new(), MessageId(0));
    loop {
        let page = letters.list(&DeadLetterFilter::all(), after, 3).await.expect("dead letters can be listed");
        let Some(last) = page.last() else { break };
        after = last.id;
        pages.push(page.into_iter().map(|letter| letter.id).collect::<Vec<_>>());
    }
    assert_eq!(pages, [&ids[..3], &ids[3..6], &ids[6..]]);
    let odd = letters.list(&DeadLetterFilter::all().error_starts_with("odd"), ids[1], 1).await.expect("a page");
    assert_eq!(odd.iter().map(|letter| letter.id).collect::<Vec<_>>(), [ids[3]]);
    // Another group has none of them.
    assert_eq!(world.letters::<Others>().await, []);
    let by_error = letters.by_error(&DeadLetterFilter::all(), 10).await.expect("dead letters can be counted");
    let seen: Vec<_> = by_error.iter().map(|group| (group.error.as_str(), group.messages, group.oldest)).collect();
    assert_eq!(seen, [("even", 4, ids[0]), ("odd", 3, ids[1])]);
    assert_eq!(by_error[1].newest, ids[5]);
}

async fn letters_are_redriven_after_the_cause_is_mended_and_handled<Db: Engine>() {
    let world = World::<Db>::new().await;
    let ids = dead(&world, 6).await;
    let letters = letters::<Db, Once>(&world).await;
    assert!(letters.redrive_one(ids[1]).await.expect("a redrive"));
    assert!(!letters.redrive_one(ids[1]).await.expect("a redrive"), "it is not dead any more");
    assert!(!letters.redrive_one(MessageId(999)).await.expect("a redrive"));
    let redriven = letters.redrive(&DeadLetterFilter::all().error_contains("even"), Duration::ZERO).await;
    let redriven = redriven.expect("a redrive");
    assert_eq!((redriven.messages, redriven.without_payload), (3, 0));
    let (consumer, mut calls) = deciding::<Once>(world.client.consumer(), |_, delivery| {
        assert_eq!((delivery.attempt(), delivery.failures()), (1, 0), "its retries begin anew");
        Ok(Outcome::Done)
    });
    let running = start(consumer);
    assert_eq!(numbers(&take(&mut calls, 4).await), [0, 1, 2, 4]);
    let position = world.settled::<Once>().await;
    assert_eq!((position.dead, position.ready, position.inflight), (2, 0, 0));
    running.stop().await;
}

async fn a_redriven_letter_runs_at_once_in_the_same_process<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let (consumer, mut calls) = deciding::<Once>(world.client.consumer(), move |_, _| {
        if is_mended.load(Ordering::Acquire) { Ok(Outcome::Done) } else { Err("out of order".into()) }
    });
    let running = start(consumer);
    let letters = letters::<Db, Once>(&world).await;
    let mut waits = Vec::new();
    for number in 0..5 {
        mended.store(false, Ordering::Release);
        let id = orders.produce(&Order::new(number)).await.expect("an order can be produced");
        take(&mut calls, 1).await;
        world.reaches::<Once>("a dead letter", |position| position.dead == 1).await;
        mended.store(true, Ordering::Release);
        let redriven = Instant::now();
        assert!(letters.redrive_one(id).await.expect("a redrive"));
        assert_eq!(numbers(&take(&mut calls, 1).await), [number]);
        waits.push(redriven.elapsed());
        world.reaches::<Once>("handled it", |position| position.settled == position.head && position.dead == 0).await;
    }
    waits.sort_unstable();
    // By polling alone it would be half a second in the middle; this machine may be busy once.
    assert!(waits[0] < Duration::from_millis(300), "{waits:?}");
    running.stop().await;
}

async fn a_letter_that_fails_again_is_dead_again_with_its_whole_history<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let id = orders.produce(&Order::new(1)).await.expect("an order can be produced");
    let (consumer, mut calls) = deciding::<All>(world.client.consumer(), |_, delivery| {
        Err(format!("failure {} after {}", delivery.failures(), delivery.attempt()).into())
    });
    let running = start(consumer);
    take(&mut calls, 4).await;
    world.settled::<All>().await;
    let first = world.letters::<All>().await.remove(0);
    assert_eq!((first.attempts, first.failures, first.redrives), (4, 4, 0));
    assert!(letters::<Db, All>(&world).await.redrive_one(id).await.expect("a redrive"));
    take(&mut calls, 4).await;
    world.reaches::<All>("a dead letter again", |position| position.dead == 1).await;
    let second = world.letters::<All>().await.remove(0);
    assert_eq!((second.attempts, second.failures, second.redrives), (8, 8, 1));
    assert_eq!((second.first_failed_at, second.error.as_str()), (first.first_failed_at, "failure 3 after 7"));
    assert!(second.died_at > first.died_at);
    running.stop().await;
    assert!(calls.try_recv().is_err(), "it ran more often than its policy says");
}

async fn a_dry_run_says_what_a_redrive_would_do_and_does_nothing<Db: Engine>() {
    let world = World::<Db>::new().await;
    let ids = dead(&world, 6).await;
    let queue = "update {}exception_queue_1 set schema_version = 7 where message_id";
    world.execute(&format!("{queue} = {}", ids[0])).await;
    world.execute(&format!("delete from {{}}message_log_1 where id = {}", ids[3])).await;
    let letters = letters::<Db, Once>(&world).await;
    for _ in 0..2 {
        let plan = letters.redrive_dry_run(&DeadLetterFilter::all()).await.expect("a plan");
        assert_eq!((plan.messages, plan.without_payload), (6, 1));
        let seen = plan.groups.iter().map(|group| {
            (group.error.as_str(), group.schema_version, group.readable, group.messages, group.without_payload)
        });
        let expected = [("odd", 1, true, 3, 1), ("even", 1, true, 2, 0), ("even", 7, false, 1, 0)];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }
    let odd = DeadLetterFilter::all().error_starts_with("odd");
    let plan = letters.redrive_dry_run(&odd).await.expect("a plan");
    let redriven = letters.redrive(&odd, Duration::ZERO).await.expect("a redrive");
    assert_eq!((plan.messages - plan.without_payload, plan.without_payload), (2, 1));
    assert_eq!((redriven.messages, redriven.without_payload), (2, 1), "as the dry run said");
}

async fn ten_thousand_letters_are_redriven_in_seconds<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    for batch in 0..10 {
        orders.produce_batch(&Order::many(batch * 1000..(batch + 1) * 1000)).await.expect("a batch can be produced");
    }
    let letters = letters::<Db, Once>(&world).await;
    let (consumer, _calls) = deciding::<Once>(world.client.consumer(), |_, _| Ok(Outcome::Dead("no".to_owned())));
    let running = start(consumer);
    world.reaches::<Once>("ten thousand dead letters", |position| position.dead == 10_000).await;
    running.stop().await;
    let begun = Instant::now();
    let redriven = letters.redrive(&DeadLetterFilter::all(), Duration::from_secs(3600)).await.expect("a redrive");
    let took = begun.elapsed();
    assert_eq!((redriven.messages, world.position::<Once>().await.ready), (10_000, 10_000));
    println!("ten thousand letters in {took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    let discarded = letters.discard(&DeadLetterFilter::all(), DiscardScope::Waiting).await.expect("a discard");
    assert_eq!(discarded, 10_000);
    assert_eq!(world.number("select count(*) from {}exception_queue_1").await, 0);
}

async fn a_letter_is_inspected_with_its_payload_which_nothing_shows<Db: Engine>() {
    let world = World::<Db>::new().await;
    let ids = dead(&world, 1).await;
    let letters = letters::<Db, Once>(&world).await;
    let inspected = letters.inspect(ids[0]).await.expect("an answer").expect("it is dead");
    assert_eq!(inspected.decode().expect("it decodes"), Order::new(0));
    let raw: serde_json::Value = serde_json::from_slice(inspected.payload().expect("a payload")).expect("JSON");
    assert_eq!(raw["note"], "order 0");
    assert_eq!((inspected.status(), inspected.letter().id), (TroubleStatus::Dead, ids[0]));
    assert_eq!(
        (inspected.routing_key(), inspected.letter().message_key.as_deref()),
        (Some("orders.eu.created"), Some("0"))
    );
    assert!(inspected.headers().is_empty() && inspected.created_at().is_some());
    let shown = format!("{inspected:?}");
    assert!(shown.contains("even") && !shown.contains("order 0"), "{shown}");
    assert!(letters.redrive_one(ids[0]).await.expect("a redrive"));
    let waiting = letters.inspect(ids[0]).await.expect("an answer").expect("it waits");
    assert!(matches!(waiting.status(), TroubleStatus::Waiting { .. }) && waiting.letter().redrives == 1);
    assert!(letters.inspect(MessageId(99)).await.expect("an answer").is_none());
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Note {
    pages: u32,
}
plain_stream!(Note, "notes", 1);
group!(NoteReaders, Note, "readers", retry: quick(0));

async fn a_payload_that_can_not_be_decoded_says_why<Db: Engine>() {
    let world = World::<Db>::new().await;
    let notes = world.producer::<Note>().await;
    let ids = notes.produce_batch(&[Note { pages: 1 }, Note { pages: 2 }, Note { pages: 3 }]).await.expect("notes");
    let consumer = world.client.consumer();
    let consumer = consumer.group_fn::<NoteReaders, _, _>(|_, _| async { Ok(Outcome::Dead("no".to_owned())) });
    let running = start(consumer);
    world.reaches::<NoteReaders>("dead letters", |position| position.dead == 3).await;
    running.stop().await;
    let log = "{}message_log_1";
    world.execute(&format!("delete from {log} where id = {}", ids[0])).await;
    world.execute(&format!("update {log} set schema_version = 4 where id = {}", ids[1])).await;
    // A brace is no place for a table's name here.
    let table = log.replace("{}", Db::TABLES);
    let bad = format!("update {table} set payload = '{{\"pages\": \"hunter2\"}}' where id = {}", ids[2]);
    Db::execute(world.client.pool(), bad).await;
    let letters = letters::<Db, NoteReaders>(&world).await;
    let expected = [
        ("SQLS-0500", "is not stored any more"),
        ("SQLS-0501", "has version 4, and this build reads version 1"),
        ("SQLS-0502", "`pages`: invalid type, expected u32"),
    ];
    for (id, (code, text)) in ids.iter().zip(expected) {
        let inspected = letters.inspect(*id).await.expect("an answer").expect("it is dead");
        let err = inspected.decode().expect_err("it does not decode");
        assert_eq!(err.code(), code);
        assert!(err.to_string().contains(text) && err.to_string().contains(&format!("message {id} ")), "{err}");
        assert!(!format!("{err:?} {inspected:?}").contains("hunter2"));
        assert_eq!(inspected.payload().is_some(), code != "SQLS-0500");
    }
}

async fn discarded_messages_are_gone_for_the_group_only<Db: Engine>() {
    let world = World::<Db>::new().await;
    let ids = dead(&world, 5).await;
    let letters = letters::<Db, Once>(&world).await;
    assert!(letters.discard_one(ids[0], DiscardScope::Dead).await.expect("a discard"));
    assert!(!letters.discard_one(ids[0], DiscardScope::Running).await.expect("a discard"), "it is gone");
    let odd = DeadLetterFilter::all().error_contains("odd");
    assert_eq!(letters.discard(&odd, DiscardScope::Dead).await.expect("a discard"), 2);
    assert!(letters.redrive_one(ids[2]).await.expect("a redrive"));
    assert!(!letters.discard_one(ids[2], DiscardScope::Dead).await.expect("a discard"), "it waits");
    assert!(letters.discard_one(ids[2], DiscardScope::Waiting).await.expect("a discard"));
    let left: Vec<_> = world.letters::<Once>().await.into_iter().map(|letter| letter.id).collect();
    assert_eq!(left, [ids[4]]);
    let (consumer, mut calls) = deciding::<All>(world.client.consumer(), |_, _| Ok(Outcome::Done));
    let running = start(consumer);
    assert_eq!(numbers(&take(&mut calls, 5).await), [0, 1, 2, 3, 4]);
    running.stop().await;
}

async fn a_discarded_message_that_runs_is_not_recorded<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let id = orders.produce(&Order::new(1)).await.expect("an order can be produced");
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (Arc::clone(&begun), Arc::clone(&go_on));
    let consumer = world.client.consumer().group_fn::<All, _, _>(move |_, delivery| {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        async move {
            if delivery.attempt() == 0 {
                return Err("not yet".into());
            }
            tell.notify_one();
            wait.notified().await;
            Err("late".into())
        }
    });
    let running = start(consumer);
    soon("the second run", begun.notified()).await;
    let letters = letters::<Db, All>(&world).await;
    assert!(!letters.discard_one(id, DiscardScope::Waiting).await.expect("a discard"), "it runs");
    assert!(letters.discard_one(id, DiscardScope::Running).await.expect("a discard"));
    go_on.notify_one();
    running.stop().await;
    assert_eq!(world.number("select count(*) from {}exception_queue_1").await, 0);
    let position = world.position::<All>().await;
    assert_eq!(position.settled, position.head);
}
