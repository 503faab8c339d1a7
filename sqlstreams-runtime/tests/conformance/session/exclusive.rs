//! Exclusive groups: of one key one message at a time, whoever handles it, in whatever order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlstreams_runtime::schema::KeyPolicy;
use sqlstreams_runtime::{Consumer, DeadLetterFilter, Outcome};
use tokio::sync::watch;

use super::ordered::{Change, InOrder, changes};
use super::world::{Engine, LIMIT, World, group, on_both_databases, quick, start, until};

on_both_databases! {
    one_message_of_a_key_runs_at_a_time_over_three_consumers
    a_message_in_trouble_is_overtaken_by_its_key
    a_redriven_message_of_an_ordered_group_runs_alone_among_its_key
}

group!(OneByOne, Change, "one-by-one", keys: KeyPolicy::Exclusive, retry: quick(1000), timeout: LIMIT.saturating_mul(10));

/// Who runs, and how often each account's messages ran.
#[derive(Clone, Default)]
struct Floor {
    accounts: Arc<Mutex<HashMap<String, (bool, u64)>>>,
}

/// An account's message that runs.
struct Standing(Floor, String);

impl Floor {
    fn enter(&self, account: &str) -> Standing {
        let mut accounts = self.accounts.lock().expect("no handler panicked");
        let (running, runs) = accounts.entry(account.to_owned()).or_default();
        assert!(!*running, "two messages of {account} run at once");
        (*running, *runs) = (true, *runs + 1);
        Standing(self.clone(), account.to_owned())
    }

    fn runs(&self, account: &str) -> u64 {
        self.accounts.lock().expect("no handler panicked").get(account).map_or(0, |(_, runs)| *runs)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Ok(mut accounts) = self.0.accounts.lock()
            && let Some((running, _)) = accounts.get_mut(&self.1)
        {
            *running = false;
        }
    }
}

async fn one_message_of_a_key_runs_at_a_time_over_three_consumers<Db: Engine>() {
    const ACCOUNTS: [&str; 5] = ["a", "b", "c", "d", "e"];
    let world = World::<Db>::new().await;
    let producer = world.producer::<Change>().await;
    let floor = Floor::default();
    let dice = Arc::new(Mutex::new(StdRng::seed_from_u64(11)));
    let failures = Arc::new(Mutex::new(0u64));
    let consumer = |consumer: Consumer| {
        let (floor, dice, failures) = (floor.clone(), Arc::clone(&dice), Arc::clone(&failures));
        consumer.concurrency(6).group_fn::<OneByOne, _, _>(move |change: Change, _| {
            let (fails, pauses) = {
                let mut dice = dice.lock().expect("no handler panicked");
                (dice.random_bool(0.15), dice.random_range(0..4))
            };
            *failures.lock().expect("no handler panicked") += u64::from(fails);
            let floor = floor.clone();
            async move {
                let _standing = floor.enter(&change.account);
                for _ in 0..pauses {
                    tokio::task::yield_now().await;
                }
                if fails { Err("not this time".into()) } else { Ok(Outcome::Done) }
            }
        })
    };
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(start(consumer(world.another_client().await.consumer())));
    }
    for part in 0..5 {
        producer.produce_batch(&changes(&ACCOUNTS, part * 8..part * 8 + 8)).await.expect("a batch can be produced");
    }
    world.settled::<OneByOne>().await;
    for running in running {
        running.stop().await;
    }
    let runs: u64 = ACCOUNTS.iter().map(|account| floor.runs(account)).sum();
    assert_eq!(runs, 5 * 40 + *failures.lock().expect("no handler panicked"), "each message ran until it succeeded");
}

async fn a_message_in_trouble_is_overtaken_by_its_key<Db: Engine>() {
    let world = World::<Db>::new().await;
    let producer = world.producer::<Change>().await;
    let floor = Floor::default();
    let of_handler = floor.clone();
    let running = start(world.client.consumer().group_fn::<OneByOne, _, _>(move |change: Change, _| {
        let floor = of_handler.clone();
        async move {
            let _standing = floor.enter(&change.account);
            if change.step == 0 { Ok(Outcome::Later(Duration::from_secs(3600))) } else { Ok(Outcome::Done) }
        }
    }));
    producer.produce_batch(&changes(&["a"], 0..30)).await.expect("a batch can be produced");
    until("the key's other messages are handled", async || floor.runs("a") == 30).await;
    world.reaches::<OneByOne>("one message in trouble", |position| position.ready == 1).await;
    running.stop().await;
}

/// Its key's later messages may be handled already: its order is gone, and yet it runs beside none of them.
async fn a_redriven_message_of_an_ordered_group_runs_alone_among_its_key<Db: Engine>() {
    let world = World::<Db>::new().await;
    let producer = world.producer::<Change>().await;
    let floor = Floor::default();
    let (healed, is_healed) = watch::channel(false);
    let consumer = |consumer: Consumer| {
        let (floor, is_healed) = (floor.clone(), is_healed.clone());
        consumer.concurrency(6).group_fn::<InOrder, _, _>(move |change: Change, delivery| {
            let (floor, is_healed) = (floor.clone(), *is_healed.borrow());
            async move {
                let _standing = floor.enter(&change.account);
                tokio::task::yield_now().await;
                match change.step % 10 {
                    3 | 7 if !is_healed => Ok(Outcome::Dead("not yet".to_owned())),
                    5 if delivery.attempt() == 0 => Err("not this time".into()),
                    _ => Ok(Outcome::Done),
                }
            }
        })
    };
    let running = [start(consumer(world.client.consumer())), start(consumer(world.another_client().await.consumer()))];
    producer.produce_batch(&changes(&["a", "b", "c"], 0..50)).await.expect("a batch can be produced");
    world.settled::<InOrder>().await;
    assert_eq!(world.position::<InOrder>().await.dead, 30);
    healed.send_replace(true);
    let letters = world.client.dead_letters::<InOrder>().await.expect("dead letters");
    for part in 5..9 {
        producer.produce_batch(&changes(&["a", "b", "c"], part * 10..part * 10 + 10)).await.expect("a batch");
        letters.redrive(&DeadLetterFilter::all(), Duration::ZERO).await.expect("a redrive");
    }
    world.settled::<InOrder>().await;
    assert_eq!(world.position::<InOrder>().await.dead, 0);
    for running in running {
        running.stop().await;
    }
}
