//! Groups that are moved through a client, while their consumers run and while they don't.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlstreams_runtime::replay::Replay;
use sqlstreams_runtime::schema::KeyPolicy;
use sqlstreams_runtime::{
    Delivery, Drain, FastForwardOptions, Group, Kind, MessageId, Outcome, Place, RewindOptions, Timestamp,
};
use sqlx::Postgres;
use tokio::sync::mpsc::unbounded_channel;

use super::ordered::Change;
use super::world::{
    All, Engine, LIMIT, Order, Told, World, deciding, group, numbers, on_both_databases, quick, soon, start, take,
    telling, until,
};

on_both_databases! {
    a_group_is_rewound_while_it_runs_and_handles_everything_above_again
    handlers_that_run_when_their_group_is_rewound_are_dropped
    a_group_is_not_rewound_while_its_handlers_run_unless_it_is_forced
    an_ordered_group_is_rewound_while_it_runs_and_keeps_the_order_of_its_keys
    an_ordered_group_that_is_rewound_by_force_keeps_the_order_within_one_process
    a_dry_run_says_what_a_rewind_does
    a_group_is_moved_to_a_time_and_to_the_beginning
    a_kept_letter_is_decided_by_the_replay
    a_group_skips_to_the_head_and_handles_what_comes_then
    moves_that_can_not_be_are_refused_and_change_nothing
}

group!(Once, Order, "once", retry: quick(0), timeout: LIMIT.saturating_mul(10));
group!(InOrder, Change, "in-order", keys: KeyPolicy::Ordered, retry: quick(1000), timeout: LIMIT.saturating_mul(10));

async fn replay<Db: Engine, G: Group>(world: &World<Db>) -> Replay<G> {
    world.client.replay::<G>().await.expect("a group can be registered")
}

fn by_force() -> RewindOptions {
    RewindOptions::default().drain(Drain::Force)
}

async fn a_group_is_rewound_while_it_runs_and_handles_everything_above_again<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let others = world.another_client().await;
    let running =
        [start(telling::<All>(world.client.consumer(), &sender)), start(telling::<All>(others.consumer(), &sender))];
    let ids = orders.produce_batch(&Order::many(0..500)).await.expect("a batch");
    take(&mut calls, 250).await;
    let moved = replay::<Db, All>(&world).await.rewind(Place::Id(ids[100]), by_force()).await.expect("a rewind");
    assert_eq!(moved.to.0 + 1, ids[100].0);
    orders.produce_batch(&Order::many(500..700)).await.expect("a batch");
    world.settled::<All>().await;
    for running in running {
        running.stop().await;
    }
    drop(sender);
    let mut runs: HashMap<MessageId, Vec<bool>> = HashMap::new();
    while let Some((_, delivery)) = calls.recv().await {
        runs.entry(delivery.message_id()).or_default().push(delivery.is_replay());
    }
    for id in &ids[100..] {
        let replays = runs.get(id).map_or(0, |runs| runs.iter().filter(|replay| **replay).count());
        let expected = usize::from(*id <= moved.from);
        assert_eq!(replays, expected, "{id} of a rewind from {} to {}: {:?}", moved.from, moved.to, runs.get(id));
    }
    for (id, runs) in &runs {
        assert!(*id > moved.to || runs.iter().all(|replay| !replay), "{id} lies below");
        assert!(*id <= moved.from || runs == &[false], "{id} was never given before: {runs:?}");
    }
}

async fn handlers_that_run_when_their_group_is_rewound_are_dropped<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let (dropped, mut ends) = unbounded_channel();
    let consumer = world.client.consumer().concurrency(4);
    let consumer = consumer.group_fn::<All, _, _>(move |order: Order, delivery: Delivery| {
        let told = Told(order.number, dropped.clone());
        let hangs = !delivery.is_replay() && order.number >= 4;
        let _ = sender.send((order, delivery));
        async move {
            if hangs {
                pending::<()>().await;
            }
            std::mem::forget(told);
            Ok(Outcome::Done)
        }
    });
    let running = start(consumer);
    let ids = orders.produce_batch(&Order::many(0..8)).await.expect("a batch");
    assert_eq!(numbers(&take(&mut calls, 8).await).len(), 8);
    let replay = replay::<Db, All>(&world).await;
    let moved = replay.rewind(Place::Id(ids[2]), by_force()).await.expect("a rewind");
    assert_eq!((moved.touched.ranges + moved.touched.ranges_cut > 0, moved.from), (true, ids[7]));
    let mut hung = Vec::new();
    for _ in 4..8 {
        hung.push(soon("the end of a handler", ends.recv()).await.expect("the consumer runs"));
    }
    hung.sort_unstable();
    assert_eq!(hung, [4, 5, 6, 7]);
    world.settled::<All>().await;
    running.stop().await;
    let mut replayed = Vec::new();
    while let Ok(call) = calls.try_recv() {
        if call.1.is_replay() {
            replayed.push(call);
        }
    }
    assert_eq!(numbers(&replayed), [2, 3, 4, 5, 6, 7]);
}

async fn a_group_is_not_rewound_while_its_handlers_run_unless_it_is_forced<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let (go, gate) = tokio::sync::watch::channel(false);
    let consumer = world.client.consumer().group_fn::<All, _, _>(move |order: Order, delivery: Delivery| {
        let _ = sender.send((order, delivery));
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|open| *open).await.map_err(|_| "the test is over")?;
            Ok(Outcome::Done)
        }
    });
    let running = start(consumer);
    let ids = orders.produce_batch(&Order::many(0..3)).await.expect("a batch");
    take(&mut calls, 3).await;
    let replay = replay::<Db, All>(&world).await;
    let within = |wait| RewindOptions::default().drain(Drain::Within(wait));
    let err = replay.rewind(Place::Beginning, within(Duration::ZERO)).await.expect_err("its handlers run");
    assert_eq!((err.code(), err.kind()), ("SQLS-0521", Kind::Unavailable));
    assert!(err.to_string().contains("\"all\"") && err.to_string().contains("Drain::Force"), "{err}");
    assert_eq!(world.number("select claimed from {}consumer_group_cursor_1").await, ids[2].0);
    // It is not paused any more.
    orders.produce(&Order::new(3)).await.expect("an order");
    assert_eq!(numbers(&take(&mut calls, 1).await), [3]);
    // While it drains it takes nothing new, and when its handlers have ended it is rewound.
    let draining = {
        let replay = replay.clone();
        tokio::spawn(async move { replay.rewind(Place::Id(MessageId(2)), within(LIMIT)).await })
    };
    until("a pause", async || {
        world.number("select count(*) from {}consumer_group_cursor_1 where paused_until is not null").await == 1
    })
    .await;
    orders.produce(&Order::new(4)).await.expect("an order");
    go.send(true).expect("the consumer runs");
    let moved = soon("the rewind", draining).await.expect("no panic").expect("a rewind");
    assert_eq!((moved.from, moved.to), (MessageId(4), MessageId(1)));
    assert_eq!(moved.touched.ranges + moved.touched.ranges_cut, 0, "nothing was torn away");
    let again = take(&mut calls, 4).await;
    let seen: Vec<_> = again.iter().map(|(order, delivery)| (order.number, delivery.is_replay())).collect();
    assert_eq!(numbers(&again), [1, 2, 3, 4]);
    assert!(seen.iter().all(|(number, replay)| *replay == (*number < 4)), "{seen:?}");
    world.settled::<All>().await;
    running.stop().await;
}

/// Steps of each account as their handlers began, with whether each was a replay.
type Begun = Arc<Mutex<HashMap<String, Vec<(u64, bool)>>>>;

fn changes(accounts: u64, steps: std::ops::Range<u64>) -> Vec<Change> {
    steps.flat_map(|step| (0..accounts).map(move |account| Change { account: account.to_string(), step })).collect()
}

/// From the first replay on, an account's steps come one after the other, to the last one.
fn check_order(begun: &Begun, accounts: u64, last: u64) {
    let begun = begun.lock().expect("no handler panicked");
    assert_eq!(begun.len() as u64, accounts);
    let mut replays = 0;
    for (account, steps) in begun.iter() {
        let Some(first) = steps.iter().position(|(_, replay)| *replay) else { continue };
        replays += 1;
        let mut again: Vec<u64> = steps[first..].iter().map(|(step, _)| *step).collect();
        again.dedup();
        let expected: Vec<u64> = (steps[first].0..=last).collect();
        assert_eq!(again, expected, "{account}: {steps:?}");
    }
    assert_eq!(replays, accounts, "each account was replayed");
}

async fn an_ordered_group_is_rewound_while_it_runs_and_keeps_the_order_of_its_keys<Db: Engine>() {
    const ACCOUNTS: u64 = 7;
    let world = World::<Db>::new().await;
    let producer = world.producer::<Change>().await;
    let begun = Begun::default();
    let mut running = Vec::new();
    for _ in 0..2 {
        let begun = Arc::clone(&begun);
        let consumer = world.another_client().await.consumer().concurrency(5);
        running.push(start(consumer.group_fn::<InOrder, _, _>(move |change: Change, delivery: Delivery| {
            let mut begun = begun.lock().expect("no handler panicked");
            begun.entry(change.account.clone()).or_default().push((change.step, delivery.is_replay()));
            // So that there are lanes as well.
            let fails = change.step % 6 == 5 && delivery.attempt() < 2;
            async move { if fails { Err("not this time".into()) } else { Ok(Outcome::Done) } }
        })));
    }
    let ids = producer.produce_batch(&changes(ACCOUNTS, 0..30)).await.expect("a batch");
    world.reaches::<InOrder>("come half way", |position| position.claimed >= ids[105].0).await;
    let replay = replay::<Db, InOrder>(&world).await;
    let moved = replay.rewind(Place::Id(ids[24]), RewindOptions::default()).await.expect("a rewind");
    assert_eq!(moved.touched.ranges + moved.touched.ranges_cut, 0, "it was drained");
    producer.produce_batch(&changes(ACCOUNTS, 30..40)).await.expect("a batch");
    world.settled::<InOrder>().await;
    for running in running {
        running.stop().await;
    }
    check_order(&begun, ACCOUNTS, 39);
}

async fn an_ordered_group_that_is_rewound_by_force_keeps_the_order_within_one_process<Db: Engine>() {
    const ACCOUNTS: u64 = 5;
    let world = World::<Db>::new().await;
    let producer = world.producer::<Change>().await;
    let begun = Begun::default();
    let (blocked, mut is_blocked) = unbounded_channel();
    let consumer = {
        let begun = Arc::clone(&begun);
        world.client.consumer().concurrency(3).group_fn::<InOrder, _, _>(move |change: Change, delivery: Delivery| {
            let mut begun = begun.lock().expect("no handler panicked");
            begun.entry(change.account.clone()).or_default().push((change.step, delivery.is_replay()));
            let hangs = !delivery.is_replay() && change.step == 20 && change.account == "3";
            let fails = change.step % 6 == 5 && delivery.attempt() < 1;
            let blocked = blocked.clone();
            async move {
                if hangs {
                    let _ = blocked.send(());
                    pending::<()>().await;
                }
                if fails { Err("not this time".into()) } else { Ok(Outcome::Done) }
            }
        })
    };
    let running = start(consumer);
    let ids = producer.produce_batch(&changes(ACCOUNTS, 0..40)).await.expect("a batch");
    soon("a handler that hangs", is_blocked.recv()).await.expect("the consumer runs");
    world.reaches::<InOrder>("claimed everything", |position| position.claimed == position.head).await;
    let replay = replay::<Db, InOrder>(&world).await;
    replay.rewind(Place::Id(ids[10]), by_force()).await.expect("a rewind");
    world.settled::<InOrder>().await;
    running.stop().await;
    check_order(&begun, ACCOUNTS, 39);
}

async fn a_dry_run_says_what_a_rewind_does<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..10)).await.expect("a batch");
    let replay = replay::<Db, Once>(&world).await;
    let (consumer, mut calls) = deciding::<Once>(world.client.consumer(), |order, delivery| match order.number {
        2 | 6 if !delivery.is_replay() => Ok(Outcome::Dead("no".to_owned())),
        7 if !delivery.is_replay() => Ok(Outcome::Later(Duration::from_secs(3600))),
        _ => Ok(Outcome::Done),
    });
    let running = start(consumer);
    take(&mut calls, 10).await;
    world.reaches::<Once>("trouble", |position| position.dead == 2 && position.ready == 1).await;
    running.stop().await;
    for _ in 0..2 {
        let plan = replay.dry_run(Place::Id(ids[4])).await.expect("a plan");
        assert_eq!((plan.from, plan.to, plan.messages, plan.running), (ids[9], ids[3], 6, 0));
        assert_eq!((plan.touched.dead_letters, plan.touched.waiting), (1, 1));
        assert_eq!((plan.below_first, plan.beyond_proof), (None, false));
    }
    world.execute(&format!("delete from {{}}message_log_1 where id <= {}", ids[4])).await;
    let plan = replay.dry_run(Place::Id(ids[1])).await.expect("a plan");
    assert_eq!((plan.to, plan.messages, plan.below_first), (ids[4], 5, Some(ids[5])));
    assert_eq!(replay.dry_run(Place::Beginning).await.expect("a plan").below_first, None, "it was not asked for less");
    let moved = replay.rewind(Place::Id(ids[1]), RewindOptions::default()).await.expect("a rewind");
    assert_eq!((moved.from, moved.to, moved.below_first), (plan.from, plan.to, plan.below_first));
    assert_eq!(moved.touched, plan.touched);
    let (consumer, mut calls) = deciding::<Once>(world.client.consumer(), |_, _| Ok(Outcome::Done));
    let running = start(consumer);
    assert_eq!(numbers(&take(&mut calls, 5).await), [5, 6, 7, 8, 9]);
    world.settled::<Once>().await;
    assert_eq!(world.letters::<Once>().await.len(), 1, "what lies below stays");
    running.stop().await;
}

async fn a_group_is_moved_to_a_time_and_to_the_beginning<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..4)).await.expect("a batch");
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    let first = take(&mut calls, 4).await;
    world.settled::<All>().await;
    let replay = replay::<Db, All>(&world).await;
    let produced: Timestamp = first[0].1.created_at();
    for place in [Place::Beginning, Place::Time(produced), Place::Id(MessageId(0))] {
        let moved = replay.rewind(place, RewindOptions::default()).await.expect("a rewind");
        assert_eq!((moved.to, moved.from), (MessageId(0), MessageId(4)), "{place:?}");
        let again = take(&mut calls, 4).await;
        assert_eq!(numbers(&again), [0, 1, 2, 3]);
        assert!(again.iter().all(|(_, delivery)| delivery.is_replay() && delivery.attempt() == 0));
        world.settled::<All>().await;
    }
    running.stop().await;
}

async fn a_kept_letter_is_decided_by_the_replay<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..6)).await.expect("a batch");
    let (consumer, mut calls) = deciding::<Once>(world.client.consumer(), |order, delivery| match order.number {
        1..=4 if !delivery.is_replay() => Err("the first time".into()),
        3 => Err("the second time".into()),
        _ => Ok(Outcome::Done),
    });
    let running = start(consumer);
    take(&mut calls, 6).await;
    world.reaches::<Once>("dead letters", |position| position.dead == 4).await;
    let replay = replay::<Db, Once>(&world).await;
    let moved = replay.rewind(Place::Id(ids[2]), RewindOptions::default().keep_dead_letters()).await.expect("a rewind");
    assert_eq!(moved.touched.dead_letters, 0);
    take(&mut calls, 4).await;
    world.reaches::<Once>("two letters", |position| position.dead == 2 && position.settled == position.head).await;
    let letters = world.letters::<Once>().await;
    let seen: Vec<_> = letters.iter().map(|letter| (letter.id, letter.attempts, letter.error.as_str())).collect();
    assert_eq!(seen, [(ids[1], 1, "the first time"), (ids[3], 2, "the second time")]);
    running.stop().await;
}

async fn a_group_skips_to_the_head_and_handles_what_comes_then<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..50)).await.expect("a batch");
    let replay = replay::<Db, All>(&world).await;
    let plan = replay.dry_run(Place::Head).await.expect("a plan");
    assert_eq!((plan.from, plan.to, plan.messages), (MessageId(0), ids[49], 50));
    let options = FastForwardOptions::default().wait(LIMIT);
    let moved = replay.fast_forward(Place::Id(ids[20]), options).await.expect("a move");
    assert_eq!((moved.from, moved.to, moved.beyond_proof), (MessageId(0), ids[19], false));
    let moved = replay.fast_forward(Place::Head, options).await.expect("a move");
    assert_eq!((moved.from, moved.to, moved.beyond_proof), (ids[19], ids[49], false));
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    orders.produce(&Order::new(50)).await.expect("an order");
    let first = take(&mut calls, 1).await;
    assert_eq!((first[0].0.number, first[0].1.is_replay()), (50, false));
    world.settled::<All>().await;
    running.stop().await;
    // Nothing is lost: what was skipped can be given back.
    assert_eq!(replay.rewind(Place::Beginning, by_force()).await.expect("a rewind").to, MessageId(0));
}

async fn moves_that_can_not_be_are_refused_and_change_nothing<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..5)).await.expect("a batch");
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    take(&mut calls, 5).await;
    world.settled::<All>().await;
    let all = replay::<Db, All>(&world).await;
    let quickly = FastForwardOptions::default().wait(Duration::ZERO);
    for place in [Place::Head, Place::Id(MessageId(6)), Place::Time(Timestamp(i64::MAX / 2))] {
        let err = all.rewind(place, RewindOptions::default()).await.expect_err("it is not behind");
        assert_eq!(err.code(), "SQLS-0520", "{place:?}");
        let text = err.to_string();
        assert!(text.contains("\"all\" stands after message 5") && text.contains("`fast_forward`"), "{text}");
    }
    for place in [Place::Beginning, Place::Id(MessageId(3)), Place::Head] {
        let err = all.fast_forward(place, quickly).await.expect_err("it is not ahead");
        assert_eq!((err.code(), err.to_string().contains("`rewind`")), ("SQLS-0520", true), "{place:?}");
    }
    world.producer::<Change>().await;
    let in_order = replay::<Db, InOrder>(&world).await;
    let err = in_order.rewind(Place::Beginning, RewindOptions::default().keep_dead_letters()).await;
    assert_eq!(err.expect_err("letters can't be kept").code(), "SQLS-0522");
    assert_eq!(world.number("select epoch from {}consumer_group_cursor_1").await, 0);
    running.stop().await;
    assert!(calls.try_recv().is_err(), "nothing was handled again");
}

/// Ids that open transactions may fill in are not passed: what commits below the head later is handled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_passes_no_id_that_an_open_transaction_may_fill_in() {
    let world = World::<Postgres>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..5)).await.expect("a batch");
    let mut tx = world.client.pool().begin().await.expect("a transaction");
    let open = orders.produce_in(&mut tx, &Order::new(5)).await.expect("one in a transaction");
    let ids = orders.produce_batch(&Order::many(6..10)).await.expect("a batch");
    let replay = replay::<Postgres, All>(&world).await;
    // An observation that was made before the transaction began proves what lies below it.
    let plan = replay.dry_run(Place::Head).await.expect("a plan");
    assert!(plan.beyond_proof && plan.to < open, "{plan:?}");
    let quickly = FastForwardOptions::default().wait(Duration::from_millis(1));
    let moved = replay.fast_forward(Place::Head, quickly).await.expect("a move");
    assert!(moved.beyond_proof && moved.to < open, "{moved:?}");
    tx.commit().await.expect("a commit");
    let moved =
        replay.fast_forward(Place::Id(ids[2]), FastForwardOptions::default().wait(LIMIT)).await.expect("a move");
    assert_eq!((moved.to, moved.beyond_proof), (ids[1], false), "it waits for the proof");
    let (sender, mut calls) = unbounded_channel();
    let running = start(telling::<All>(world.client.consumer(), &sender));
    assert_eq!(numbers(&take(&mut calls, 2).await), [8, 9]);
    running.stop().await;
}
