//! Ordered groups: of one key one message at a time, in order, whatever happens to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams_runtime::schema::{KeyPolicy, Route};
use sqlstreams_runtime::{BoxError, Consumer, Delivery, Outcome, SegmentError, Stream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;

use super::world::{Engine, LIMIT, World, group, on_both_databases, quick, soon, start, until};

on_both_databases! {
    keys_keep_their_order_over_three_consumers_and_all_outcomes
    a_key_in_trouble_is_one_row_and_blocks_no_other_key
    a_dead_letter_lets_its_key_go_on
    a_hot_key_holds_back_neither_other_keys_nor_the_group
    a_consumer_that_is_dropped_leaves_its_keys_in_order
    a_shutdown_in_the_middle_of_a_key_keeps_its_order
}

/// A change of an account: the `step`th of its kind.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    pub account: String,
    pub step: u64,
}

impl Stream for Change {
    const NAME: &'static str = "changes";
    const VERSION: u32 = 1;
    const ROUTE: Route = Route::NONE;
    const KEY: Option<&'static str> = Some("account");

    fn routing_key(&self) -> Result<Option<String>, SegmentError> {
        Ok(None)
    }

    fn message_key(&self) -> Option<String> {
        Some(self.account.clone())
    }
}

group!(pub InOrder, Change, "in-order", keys: KeyPolicy::Ordered, retry: quick(1000), timeout: LIMIT.saturating_mul(10));

/// `steps` changes of each account, the accounts in turn.
pub fn changes(accounts: &[&str], steps: std::ops::Range<u64>) -> Vec<Change> {
    steps.flat_map(|step| accounts.iter().map(move |&account| Change { account: account.to_owned(), step })).collect()
}

/// What handlers did with each account.
#[derive(Clone, Default)]
struct Ledger {
    accounts: Arc<Mutex<HashMap<String, Account>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    running: bool,
    /// The step that comes next.
    next: u64,
    runs: u64,
}

impl Ledger {
    /// A handler starts; the step has to be the account's next one, or one before it when `again` is allowed.
    fn begin(&self, change: &Change, again: bool) {
        let mut accounts = self.accounts.lock().expect("no handler panicked");
        let account = accounts.entry(change.account.clone()).or_default();
        assert!(!account.running, "two messages of {} run at once: {change:?}", change.account);
        let is_next = change.step == account.next || (again && change.step < account.next);
        assert!(is_next, "{change:?} starts when {account:?}");
        account.running = true;
        account.next = change.step;
        account.runs += 1;
    }

    /// It ended; `resolved` when the message will not run again.
    fn end(&self, change: &Change, resolved: bool) {
        let mut accounts = self.accounts.lock().expect("no handler panicked");
        let account = accounts.get_mut(&change.account).expect("it began");
        account.running = false;
        account.next += u64::from(resolved);
    }

    fn of(&self, account: &str) -> Account {
        self.accounts.lock().expect("no handler panicked").get(account).copied().unwrap_or_default()
    }
}

async fn keys_keep_their_order_over_three_consumers_and_all_outcomes<Db: Engine>() {
    const ACCOUNTS: [&str; 11] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
    const PARTS: u64 = 8;
    let world = World::<Db>::new().await;
    let producer = world.producer::<Change>().await;
    let ledger = Ledger::default();
    let dice = Arc::new(Mutex::new(StdRng::seed_from_u64(7)));
    let consumer = |consumer: Consumer| {
        let (ledger, dice) = (ledger.clone(), Arc::clone(&dice));
        consumer.concurrency(6).group_fn::<InOrder, _, _>(move |change: Change, _| {
            let ledger = ledger.clone();
            let (fate, pauses) = {
                let mut dice = dice.lock().expect("no handler panicked");
                (dice.random_range(0..20), dice.random_range(0..4))
            };
            async move {
                ledger.begin(&change, false);
                for _ in 0..pauses {
                    tokio::task::yield_now().await;
                }
                let result: Result<Outcome, BoxError> = match fate {
                    0 | 1 => Err("not this time".into()),
                    2 => Ok(Outcome::Later(Duration::from_millis(5))),
                    3 => Ok(Outcome::Dead("never".to_owned())),
                    _ => Ok(Outcome::Done),
                };
                ledger.end(&change, matches!(result, Ok(Outcome::Done | Outcome::Dead(_))));
                result
            }
        })
    };
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(start(consumer(world.another_client().await.consumer())));
    }
    for part in 0..PARTS {
        let mut batch = changes(&ACCOUNTS, part * 5..part * 5 + 5);
        batch.extend(changes(&["hot"], part * 40..part * 40 + 40));
        producer.produce_batch(&batch).await.expect("a batch can be produced");
    }
    world.settled::<InOrder>().await;
    for running in running {
        running.stop().await;
    }
    for account in ACCOUNTS {
        assert_eq!(ledger.of(account).next, PARTS * 5, "{account}: {:?}", ledger.of(account));
    }
    assert_eq!(ledger.of("hot").next, PARTS * 40, "{:?}", ledger.of("hot"));
}

/// A consumer whose handlers keep the ledger; after a crash they may run again.
fn kept(
    consumer: Consumer,
    ledger: &Ledger,
    decide: impl Fn(&Change, u32) -> Fate + Clone + Send + Sync + 'static,
) -> Consumer {
    let ledger = ledger.clone();
    consumer.group_fn::<InOrder, _, _>(move |change: Change, delivery: Delivery| {
        let (ledger, fate) = (ledger.clone(), decide(&change, delivery.attempt()));
        async move {
            ledger.begin(&change, true);
            // A handler that is dropped does not run any more.
            let ending = Ending { ledger: ledger.clone(), change: change.clone() };
            let result = match fate {
                Fate::Is(result) => result,
                Fate::Waits(gate) => {
                    gate.acquire().await.map(|permit| permit.forget()).map(|()| Outcome::Done).map_err(Into::into)
                }
            };
            std::mem::forget(ending);
            ledger.end(&change, matches!(result, Ok(Outcome::Done | Outcome::Dead(_))));
            result
        }
    })
}

struct Ending {
    ledger: Ledger,
    change: Change,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.ledger.end(&self.change, false);
    }
}

/// What becomes of a run.
enum Fate {
    Is(Result<Outcome, BoxError>),
    Waits(Arc<Semaphore>),
}

const DONE: Fate = Fate::Is(Ok(Outcome::Done));

async fn rows<Db: Engine>(world: &World<Db>) -> i64 {
    world.number("select count(*) from {}exception_queue_1").await
}

async fn a_key_in_trouble_is_one_row_and_blocks_no_other_key<Db: Engine>() {
    let world = World::<Db>::new().await;
    let producer = world.producer::<Change>().await;
    let ledger = Ledger::default();
    let (healed, is_healed) = tokio::sync::watch::channel(false);
    let running = start(kept(world.client.consumer().concurrency(4), &ledger, move |change, _| {
        if change.account == "ill" && change.step == 3 && !*is_healed.borrow() {
            return Fate::Is(Ok(Outcome::Later(Duration::from_millis(20))));
        }
        DONE
    }));
    for part in 0..5 {
        producer.produce_batch(&changes(&["ill", "a", "b"], part * 50..part * 50 + 50)).await.expect("a batch");
    }
    until("all messages of the other keys are handled", async || {
        ["a", "b"].iter().all(|account| ledger.of(account).next == 250)
    })
    .await;
    world.reaches::<InOrder>("settled all ranges", |position| position.ready + position.inflight == 1).await;
    until("the key's messages are in its lane", async || {
        world.number("select count(*) from {}claim_lease_1").await == 0
    })
    .await;
    assert_eq!((ledger.of("ill").next, rows(&world).await), (3, 1));
    healed.send_replace(true);
    world.settled::<InOrder>().await;
    assert_eq!((ledger.of("ill").next, rows(&world).await), (250, 0));
    running.stop().await;
}

async fn a_dead_letter_lets_its_key_go_on<Db: Engine>() {
    let world = World::<Db>::new().await;
    let producer = world.producer::<Change>().await;
    let ledger = Ledger::default();
    producer.produce_batch(&changes(&["a", "b"], 0..20)).await.expect("a batch can be produced");
    let running = start(kept(world.client.consumer().concurrency(4), &ledger, |change, attempt| {
        match (&*change.account, change.step) {
            // The first and the last of the key among them, at once and after retries.
            ("a", 0 | 7 | 8) => Fate::Is(Ok(Outcome::Dead("never".to_owned()))),
            ("a", 12 | 19) if attempt > 0 => Fate::Is(Ok(Outcome::Dead("not then either".to_owned()))),
            ("a", 12 | 19) => Fate::Is(Err("not this time".into())),
            _ => DONE,
        }
    }));
    world.settled::<InOrder>().await;
    assert_eq!((ledger.of("a").next, ledger.of("b").next), (20, 20));
    assert_eq!(ledger.of("a").runs, 22);
    let position = world.position::<InOrder>().await;
    assert_eq!((position.dead, position.ready, position.inflight), (5, 0, 0));
    assert_eq!(world.number("select count(*) from {}exception_queue_1 where held_to is not null").await, 0);
    producer.produce_batch(&changes(&["a"], 20..25)).await.expect("a batch can be produced");
    world.settled::<InOrder>().await;
    assert_eq!(ledger.of("a").next, 25);
    running.stop().await;
}

async fn a_hot_key_holds_back_neither_other_keys_nor_the_group<Db: Engine>() {
    let world = World::<Db>::new().await;
    let producer = world.producer::<Change>().await;
    let ledger = Ledger::default();
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    let running = start(kept(world.client.consumer().concurrency(4), &ledger, move |change, _| {
        if change.account == "hot" { Fate::Waits(Arc::clone(&waiting)) } else { DONE }
    }));
    // More of the hot key than the group may hold in open ranges, then the others.
    for part in 0..40 {
        producer.produce_batch(&changes(&["hot"], part * 100..part * 100 + 100)).await.expect("a batch");
    }
    producer.produce_batch(&changes(&["a", "b", "c"], 0..50)).await.expect("a batch can be produced");
    until("the other keys are handled", async || {
        // The hot key goes on slowly.
        gate.add_permits(1);
        ["a", "b", "c"].iter().all(|account| ledger.of(account).next == 50)
    })
    .await;
    assert!(ledger.of("hot").next < 1000, "the others overtook it: {:?}", ledger.of("hot"));
    let of_hot = world.number("select count(*) from {}exception_queue_1 where message_key = 'hot'").await;
    assert!(of_hot <= 1, "a hot key does not fill the table: {of_hot}");
    gate.add_permits(4000);
    world.settled::<InOrder>().await;
    assert_eq!((ledger.of("hot").next, rows(&world).await), (4000, 0));
    running.stop().await;
}

async fn a_consumer_that_is_dropped_leaves_its_keys_in_order<Db: Engine>() {
    let world = World::<Db>::new().await;
    let producer = world.producer::<Change>().await;
    let ledger = Ledger::default();
    producer.produce_batch(&changes(&["a", "b", "c"], 0..100)).await.expect("a batch can be produced");
    let (sender, mut stuck) = unbounded_channel();
    let first = world.another_client().await;
    let consumer = first.consumer().concurrency(3).lease(Duration::from_secs(1));
    let running = start(kept(consumer, &ledger, move |change, _| {
        if change.step == 30 {
            let _ = sender.send(change.account.clone());
            return Fate::Waits(Arc::new(Semaphore::new(0)));
        }
        DONE
    }));
    for _ in 0..3 {
        soon("a handler that waits", stuck.recv()).await;
    }
    running.drop_now().await;
    let running = start(kept(world.client.consumer().concurrency(3), &ledger, |change, attempt| {
        if change.step % 9 == 0 && attempt == 0 { Fate::Is(Err("not this time".into())) } else { DONE }
    }));
    producer.produce_batch(&changes(&["a", "b", "c"], 100..120)).await.expect("a batch can be produced");
    world.settled::<InOrder>().await;
    running.stop().await;
    for account in ["a", "b", "c"] {
        assert_eq!(ledger.of(account).next, 120, "{account}");
    }
}

async fn a_shutdown_in_the_middle_of_a_key_keeps_its_order<Db: Engine>() {
    let world = World::<Db>::new().await;
    let producer = world.producer::<Change>().await;
    let ledger = Ledger::default();
    for part in 0..6u64 {
        producer.produce_batch(&changes(&["a", "b", "c"], part * 30..part * 30 + 30)).await.expect("a batch");
        let (sender, mut begun) = unbounded_channel();
        let consumer = world.client.consumer().concurrency(3).shutdown_within(Duration::from_millis(50));
        let running = start(kept(consumer, &ledger, move |change, attempt| {
            let _ = sender.send(());
            match change.step % 10 {
                3 if attempt == 0 => Fate::Is(Err("not this time".into())),
                5 if attempt == 0 => Fate::Is(Ok(Outcome::Dead("never".to_owned()))),
                // In every other round some handlers never end.
                7 if part.is_multiple_of(2) => Fate::Waits(Arc::new(Semaphore::new(0))),
                _ => DONE,
            }
        }));
        for _ in 0..3 {
            soon("a handler", begun.recv()).await;
        }
        running.stop().await;
    }
    let running = start(kept(world.client.consumer(), &ledger, |_, _| DONE));
    world.settled::<InOrder>().await;
    running.stop().await;
    for account in ["a", "b", "c"] {
        assert_eq!(ledger.of(account).next, 180, "{account}");
    }
}
