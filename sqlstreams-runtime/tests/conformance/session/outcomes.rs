//! Outcomes: done, again, later, dead; and what else becomes of a handler.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::schema::RetryPolicy;
use sqlstreams_runtime::{BoxError, DeadLetter, Delivery, Group, Outcome};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;

use super::world::{
    All, Call, Engine, Order, Told, World, deciding, group, numbers, on_both_databases, quick, soon, start, take,
};

on_both_databases! {
    a_handler_chooses_its_delay_up_to_the_groups_longest
    a_handler_that_reports_progress_outlives_its_timeout
    messages_in_trouble_leave_half_of_the_places_to_fresh_ones
    an_error_is_repeated_until_success_and_the_delivery_counts
    a_message_that_is_put_off_spends_no_strike
    the_delays_between_failures_are_those_of_the_policy
    a_dead_letter_keeps_its_reason_and_is_never_run_again
    spent_retries_end_as_a_dead_letter_with_a_text_of_at_most_1_kib
    a_panic_is_a_failure_with_its_text
    a_handler_that_takes_too_long_is_dropped_and_that_is_a_failure
    trouble_of_some_messages_does_not_hold_the_others
    an_outcome_that_the_database_did_not_take_is_not_counted
}

group!(Once, Order, "once", retry: quick(0));
group!(Impatient, Order, "impatient", retry: quick(0), timeout: Duration::from_millis(50));

fn counts(delivery: &Delivery) -> (u32, u32, u32) {
    (delivery.attempt(), delivery.failures(), delivery.delays())
}

async fn dead_letters<Db: Engine, G: Group>(world: &World<Db>, count: i64) -> Vec<DeadLetter> {
    world
        .reaches::<G>("its dead letters", |position| position.dead == count && position.settled == position.head)
        .await;
    world.letters::<G>().await
}

async fn an_error_is_repeated_until_success_and_the_delivery_counts<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let id = orders.produce(&Order::new(1)).await.expect("an order can be produced");
    let (consumer, mut calls) = deciding::<All>(world.client.consumer(), |_, delivery| match delivery.attempt() {
        0 | 1 => Err("not yet".into()),
        2 => Ok(Outcome::Later(Duration::from_millis(1))),
        3 => Err("once more".into()),
        _ => Ok(Outcome::Done),
    });
    let running = start(consumer);
    let handled = take(&mut calls, 5).await;
    let seen: Vec<_> = handled.iter().map(|(_, delivery)| counts(delivery)).collect();
    assert_eq!(seen, [(0, 0, 0), (1, 1, 0), (2, 2, 0), (3, 2, 1), (4, 3, 1)]);
    for (order, delivery) in &handled {
        assert_eq!((order, delivery.message_id()), (&Order::new(1), id));
        assert_eq!(delivery.routing_key(), Some("orders.eu.created"));
        assert_eq!(delivery.message_key(), Some("1"));
    }
    world.settled::<All>().await;
    let summary = &running.stop().await[0];
    assert_eq!((summary.done, summary.retried, summary.delayed, summary.dead), (1, 3, 1, 0));
    assert_eq!(world.number("select count(*) from {}exception_queue_1").await, 0);
}

async fn a_message_that_is_put_off_spends_no_strike<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce(&Order::new(1)).await.expect("an order can be produced");
    // The group allows no retry at all.
    let (consumer, mut calls) = deciding::<Once>(world.client.consumer(), |_, delivery| match delivery.delays() {
        0..4 => Ok(Outcome::Later(Duration::from_millis(1))),
        _ => Ok(Outcome::Done),
    });
    let running = start(consumer);
    let seen: Vec<_> = take(&mut calls, 5).await.iter().map(|(_, delivery)| counts(delivery)).collect();
    assert_eq!(seen, [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 0, 3), (4, 0, 4)]);
    assert_eq!(world.settled::<Once>().await.dead, 0);
    let summary = &running.stop().await[0];
    assert_eq!((summary.done, summary.delayed, summary.retried, summary.dead), (1, 4, 0, 0));
}

async fn the_delays_between_failures_are_those_of_the_policy<Db: Engine>() {
    const HOUR: Duration = Duration::from_secs(3600);
    const SLOW: RetryPolicy = RetryPolicy {
        retries: 4,
        first_delay: HOUR,
        max_delay: Duration::from_secs(3 * 3600),
        factor: 2,
        jitter_percent: 0,
    };
    group!(Slow, Order, "slow", retry: SLOW);
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce(&Order::new(1)).await.expect("an order can be produced");
    let (consumer, mut calls) = deciding::<Slow>(world.client.consumer(), |_, _| Err("no".into()));
    let running = start(consumer);
    let (minutes, due) = match Db::KIND {
        "postgres" => ("(extract(epoch from can_run_after - updated_at) / 60)::bigint", "clock_timestamp()"),
        _ => ("(can_run_after - updated_at) / 60000000", "0"),
    };
    for expected in [60, 120, 180, 180] {
        take(&mut calls, 1).await;
        world.reaches::<Slow>("recorded the failure", |position| position.ready == 1).await;
        let waits = world.number(&format!("select {minutes} from {{}}exception_queue_1")).await;
        assert!((waits - expected).abs() <= 1, "{waits} minutes instead of {expected}");
        world.execute(&format!("update {{}}exception_queue_1 set can_run_after = {due}")).await;
    }
    take(&mut calls, 1).await;
    assert_eq!(dead_letters::<Db, Slow>(&world, 1).await[0].attempts, 5);
    running.stop().await;
}

async fn a_dead_letter_keeps_its_reason_and_is_never_run_again<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..4)).await.expect("a batch can be produced");
    let (consumer, mut calls) = deciding::<All>(world.client.consumer(), |order, delivery| match order.number {
        1 => Ok(Outcome::Dead("no such customer".to_owned())),
        2 if delivery.attempt() == 0 => Err("not yet".into()),
        2 => Ok(Outcome::Dead("no\0such region".to_owned())),
        _ => Ok(Outcome::Done),
    });
    let running = start(consumer);
    assert_eq!(numbers(&take(&mut calls, 5).await), [0, 1, 2, 2, 3]);
    let dead = dead_letters::<Db, All>(&world, 2).await;
    let seen: Vec<_> = dead.iter().map(|letter| (letter.id, letter.attempts, letter.error.as_str())).collect();
    assert_eq!(seen, [(ids[1], 1, "no such customer"), (ids[2], 2, "no\u{fffd}such region")]);
    for (letter, number) in dead.iter().zip(["1", "2"]) {
        assert_eq!((letter.schema_version, letter.message_key.as_deref()), (1, Some(number)));
        assert_eq!((letter.failures, letter.redrives, letter.kills), (letter.attempts, 0, 0));
        assert!(letter.first_failed_at.is_some() && letter.died_at >= letter.first_failed_at, "{letter:?}");
    }
    let summary = &running.stop().await[0];
    assert_eq!((summary.done, summary.retried, summary.dead), (2, 1, 2));
    // A later consumer leaves them alone.
    let (consumer, mut calls) = deciding::<All>(world.client.consumer(), |_, _| Ok(Outcome::Done));
    let running = start(consumer);
    orders.produce(&Order::new(4)).await.expect("an order can be produced");
    assert_eq!(numbers(&take(&mut calls, 1).await), [4]);
    world.settled::<All>().await;
    running.stop().await;
    assert!(calls.try_recv().is_err(), "a dead letter was handled");
}

/// An error with a cause, as handlers have them.
#[derive(Debug)]
struct Outer(std::num::ParseIntError);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the amount is no number")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

async fn spent_retries_end_as_a_dead_letter_with_a_text_of_at_most_1_kib<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..3)).await.expect("a batch can be produced");
    let (consumer, mut calls) = deciding::<All>(world.client.consumer(), |order, _| match order.number {
        // Its 1024th byte is the first of a character's two.
        0 => Err(format!("x{}", "ä".repeat(1000)).into()),
        1 => Err(Box::new(Outer("y".parse::<u8>().expect_err("y is no number"))) as BoxError),
        _ => Ok(Outcome::Dead("z".repeat(5000))),
    });
    let running = start(consumer);
    take(&mut calls, 4 + 4 + 1).await;
    let dead = dead_letters::<Db, All>(&world, 3).await;
    assert_eq!(
        dead.iter().map(|letter| (letter.id, letter.attempts)).collect::<Vec<_>>(),
        [(ids[0], 4), (ids[1], 4), (ids[2], 1)]
    );
    assert_eq!(dead[0].error, format!("x{}", "ä".repeat(511)));
    assert_eq!(dead[1].error, "the amount is no number: invalid digit found in string");
    assert_eq!(dead[2].error, "z".repeat(1024));
    running.stop().await;
    assert!(calls.try_recv().is_err(), "a message was run after its retries were spent");
}

async fn a_panic_is_a_failure_with_its_text<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..6)).await.expect("a batch can be produced");
    let (sender, mut calls) = unbounded_channel();
    let consumer = world.client.consumer().group_fn::<All, _, _>(move |order: Order, delivery: Delivery| {
        let _ = sender.send((order.clone(), delivery.clone()));
        if order.number == 0 {
            panic!("before the future");
        }
        async move {
            match order.number {
                1 => panic!("in order {}", order.number),
                2 => {
                    tokio::task::yield_now().await;
                    panic!("after a wait");
                }
                3 => std::panic::panic_any(7_u8),
                4 if delivery.attempt() == 0 => panic!("only once"),
                _ => Ok(Outcome::Done),
            }
        }
    });
    let running = start(consumer);
    let handled: Vec<Call> = take(&mut calls, 4 * 4 + 2 + 1).await;
    assert_eq!(handled.iter().filter(|(order, _)| order.number == 4).count(), 2);
    let errors: Vec<_> = dead_letters::<Db, All>(&world, 4).await.into_iter().map(|letter| letter.error).collect();
    let panicked = |text: &str| format!("the handler panicked: {text}");
    let texts = ["before the future", "in order 1", "after a wait", "without a text"];
    assert_eq!(errors, texts.map(panicked));
    // The consumer goes on.
    orders.produce(&Order::new(6)).await.expect("an order can be produced");
    assert_eq!(numbers(&take(&mut calls, 1).await), [6]);
    world.settled::<All>().await;
    let summary = &running.stop().await[0];
    assert_eq!((summary.done, summary.retried, summary.dead), (3, 4 * 3 + 1, 4));
}

async fn a_handler_that_takes_too_long_is_dropped_and_that_is_a_failure<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..3)).await.expect("a batch can be produced");
    let (sender, mut dropped) = unbounded_channel();
    let consumer = world.client.consumer().group_fn::<Impatient, _, _>(move |order: Order, _| {
        let told = Told(order.number, sender.clone());
        async move {
            if order.number == 1 {
                std::future::pending::<()>().await;
            }
            drop(told);
            Ok(Outcome::Done)
        }
    });
    let running = start(consumer);
    let mut ended = Vec::new();
    for _ in 0..3 {
        ended.push(soon("the end of a handler", dropped.recv()).await.expect("the consumer runs"));
    }
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2]);
    let dead = dead_letters::<Db, Impatient>(&world, 1).await;
    assert_eq!((dead[0].id, dead[0].attempts), (ids[1], 1));
    assert_eq!(dead[0].error, "the handler was not done within its timeout of 50ms");
    running.stop().await;
}

async fn trouble_of_some_messages_does_not_hold_the_others<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    // Every third message is put off for an hour, more than there are handlers.
    let (consumer, mut calls) =
        deciding::<All>(world.client.consumer().concurrency(4), |order, delivery| match order.number % 3 {
            0 => Ok(Outcome::Later(Duration::from_secs(3600))),
            1 if delivery.attempt() == 0 => Err("not yet".into()),
            _ => Ok(Outcome::Done),
        });
    let running = start(consumer);
    for hundred in 0..3 {
        orders.produce_batch(&Order::many(hundred * 99..hundred * 99 + 99)).await.expect("a batch can be produced");
    }
    take(&mut calls, 297 + 99).await;
    world.reaches::<All>("99 messages that wait", |position| position.ready == 99 && position.inflight == 0).await;
    let summary = &running.stop().await[0];
    assert_eq!((summary.done, summary.retried, summary.delayed), (198, 99, 99));
}

async fn an_outcome_that_the_database_did_not_take_is_not_counted<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let finish = Arc::new(tokio::sync::Semaphore::new(0));
    let may_finish = Arc::clone(&finish);
    let consumer = world.client.consumer().group_fn::<All, _, _>(move |order: Order, delivery: Delivery| {
        let (finish, failures) = (Arc::clone(&may_finish), delivery.failures());
        let _ = sender.send((order, delivery));
        async move {
            if failures == 0 {
                return Err(BoxError::from("once more"));
            }
            finish.acquire().await?.forget();
            Ok(Outcome::Done)
        }
    });
    let running = start(consumer);
    orders.produce(&Order::new(1)).await.expect("an order can be produced");
    take(&mut calls, 2).await;
    // The second run loses its message: it is taken again, and both runs end well.
    world.execute("update {}exception_queue_1 set token = null, presence_id = null").await;
    take(&mut calls, 1).await;
    finish.add_permits(2);
    world.settled::<All>().await;
    let summary = running.stop().await.remove(0);
    assert_eq!((summary.retried, summary.done), (1, 1));
}

group!(Patient, Order, "patient", retry: RetryPolicy { max_delay: Duration::from_secs(60), ..quick(5) });

async fn a_handler_chooses_its_delay_up_to_the_groups_longest<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(1..4)).await.expect("a batch can be produced");
    let (consumer, mut calls) =
        deciding::<Patient>(world.client.consumer(), |order, delivery| match delivery.attempt() {
            0 => Ok(Outcome::Retry {
                error: "busy".to_owned(),
                after: Duration::from_secs([0, 0, 30, 3600][order.number as usize]),
            }),
            _ => Ok(Outcome::Done),
        });
    let running = start(consumer);
    assert_eq!(numbers(&take(&mut calls, 4).await), [1, 1, 2, 3], "the first comes again at once");
    world.reaches::<Patient>("two that wait", |position| position.ready == 2 && position.inflight == 0).await;
    running.stop().await;
    let seconds = match Db::KIND {
        "postgres" => "extract(epoch from can_run_after - clock_timestamp())",
        _ => "(can_run_after / 1000000 - unixepoch())",
    };
    let waits = format!("select cast({seconds} as bigint) from {{}}exception_queue_1 order by message_id");
    let waits = world.numbers(&waits).await;
    assert!((1..=30).contains(&waits[0]), "{waits:?}");
    assert!((31..=60).contains(&waits[1]), "no longer than the group's longest: {waits:?}");
    let failures = world.numbers("select cast(failures as bigint) from {}exception_queue_1").await;
    assert_eq!(failures, [1, 1], "a strike");
}

async fn a_handler_that_reports_progress_outlives_its_timeout<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..2)).await.expect("a batch can be produced");
    let consumer = world.client.consumer().group_fn::<Impatient, _, _>(|order: Order, delivery: Delivery| async move {
        let mut work = tokio::time::interval(Duration::from_millis(5));
        for _ in 0..40 {
            work.tick().await;
            if order.number == 0 {
                delivery.progress();
            }
        }
        Ok(Outcome::Done)
    });
    let running = start(consumer);
    world.reaches::<Impatient>("one dead", |position| position.dead == 1 && position.settled == position.head).await;
    let summary = &running.stop().await[0];
    assert_eq!((summary.done, summary.dead), (1, 1));
    assert_eq!(world.letters::<Impatient>().await[0].id.0, 2, "the one that said nothing");
}

async fn messages_in_trouble_leave_half_of_the_places_to_fresh_ones<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (fresh_may_end, troubled_may_end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (fresh_gate, troubled_gate) = (Arc::clone(&fresh_may_end), Arc::clone(&troubled_may_end));
    let ((put_off, mut are_put_off), (begin, mut begun)) = (unbounded_channel(), unbounded_channel());
    let consumer =
        world.client.consumer().concurrency(4).group_fn::<Patient, _, _>(move |order: Order, delivery: Delivery| {
            let (put_off, begin) = (put_off.clone(), begin.clone());
            let gate = Arc::clone(if order.number < 10 { &troubled_gate } else { &fresh_gate });
            async move {
                if order.number < 10 && delivery.attempt() == 0 {
                    let _ = put_off.send(());
                    // Long enough for the fresh ones to take all places before.
                    return Ok(Outcome::Later(Duration::from_secs(3)));
                }
                let _ = begin.send(order.number);
                gate.acquire().await?.forget();
                Ok(Outcome::Done)
            }
        });
    let running = start(consumer);
    orders.produce_batch(&Order::many(0..10)).await.expect("a batch can be produced");
    for _ in 0..10 {
        soon("a message that is put off", are_put_off.recv()).await;
    }
    orders.produce_batch(&Order::many(10..90)).await.expect("a batch can be produced");
    let mut inside = Vec::new();
    for _ in 0..4 {
        inside.push(soon("a handler", begun.recv()).await.expect("the consumer runs"));
    }
    assert!(inside.iter().all(|number| *number >= 10), "{inside:?}");
    world.reaches::<Patient>("all that were put off due", |position| position.inflight > 0).await;
    // Each fresh message that ends gives its place to the next one in line.
    for _ in 0..40 {
        fresh_may_end.add_permits(1);
        inside.push(soon("a handler", begun.recv()).await.expect("the consumer runs"));
    }
    assert_eq!(inside.iter().filter(|number| **number < 10).count(), 2, "half of the places: {inside:?}");
    fresh_may_end.add_permits(80);
    troubled_may_end.add_permits(10);
    world.settled::<Patient>().await;
    running.stop().await;
}
