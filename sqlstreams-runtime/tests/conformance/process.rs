//! Consumers as processes that are killed, frozen, or kill themselves.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sqlstreams_runtime::{Consumer, Delivery, GroupSummary, Outcome};
use sqlx::{Postgres, Sqlite};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::watch;
use tokio::time::interval;

use crate::session::world::{
    All, Engine, LIMIT, Order, World, connect, numbers, on_both_databases, soon, start, take, telling, until,
};
use crate::support::child::{ChildProcess, Parent, say};

on_both_databases! {
    a_killed_consumer_loses_nothing_and_only_what_it_did_not_report_is_handled_again
    a_frozen_consumer_drops_what_it_lost_when_it_thaws_and_goes_on
    a_frozen_consumer_starts_nothing_that_it_lost_when_it_thaws
    what_a_thawed_consumer_settles_late_changes_nothing
    a_message_that_kills_its_process_again_and_again_ends_dead_alone
    eight_consumers_handle_every_message_exactly_once
}

/// How long others wait for a process that is gone.
const LEASE: Duration = Duration::from_secs(1);
/// Within this time a lost range is with others, also on a busy machine.
const SECONDS: Duration = Duration::from_secs(20);

/// A message of this number is put off once.
const TROUBLED: u64 = 5;

/// A consumer process of the world's installation.
fn child<Db: Engine>(world: &World<Db>, plan: &str) -> ChildProcess {
    let variables = [("KIND", Db::KIND), ("URL", &world.url()), ("PLAN", plan)];
    ChildProcess::start(module_path!(), "consumer_process", &variables)
}

/// The numbers that follow `word` in a child's next lines, in order.
async fn hear(child: &mut ChildProcess, word: &str, count: usize) -> Vec<u64> {
    let mut heard = Vec::with_capacity(count);
    for _ in 0..count {
        heard.push(child.expect(word, LIMIT).await.parse().expect("a number follows"));
    }
    heard.sort_unstable();
    heard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the consumer process of other tests"]
async fn consumer_process() {
    let Some(parent) = Parent::connect() else {
        return;
    };
    match variable("KIND").as_str() {
        "postgres" => consume::<Postgres>(parent).await,
        _ => consume::<Sqlite>(parent).await,
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).expect("the parent gives the variable")
}

/// Consumes by the plan until the parent says `stop`.
async fn consume<Db: Engine>(mut parent: Parent) {
    let client = connect::<Db>(&variable("URL")).await;
    let (go, going) = watch::channel(false);
    let consumer = client.consumer().lease(LEASE).shutdown_within(LIMIT);
    let consumer = match variable("PLAN").as_str() {
        "handle" => handling(consumer),
        "stick at 10" => sticking(consumer.concurrency(1)),
        "wait" => waiting(consumer.concurrency(8), going, Duration::ZERO),
        "wait one by one" => waiting(consumer.concurrency(1), going, Duration::from_secs(3)),
        "die of 7" => dying(consumer.concurrency(4), client.pool().clone()),
        plan => panic!("no such plan: {plan}"),
    };
    let running = start(consumer);
    parent.say("running");
    loop {
        match parent.hear().await.as_str() {
            "stop" => break,
            _ => drop(go.send(true)),
        }
    }
    let GroupSummary { done, dead, .. } = running.stop().await.remove(0);
    parent.say(format_args!("summary {done} done, {dead} dead"));
}

fn handling(consumer: Consumer) -> Consumer {
    consumer.group_fn::<All, _, _>(|order: Order, delivery: Delivery| {
        assert_eq!(delivery.attempt(), u32::from(order.number == TROUBLED));
        say(format_args!("handled {}", order.number));
        async { Ok(Outcome::Done) }
    })
}

fn sticking(consumer: Consumer) -> Consumer {
    consumer.group_fn::<All, _, _>(|order: Order, _| async move {
        if order.number == 10 {
            say("stuck");
            std::future::pending::<()>().await;
        }
        Ok(Outcome::Done)
    })
}

/// Tells that its handler was dropped before its end.
struct Unfinished(u64);

impl Drop for Unfinished {
    fn drop(&mut self) {
        say(format_args!("dropped {}", self.0));
    }
}

fn waiting(consumer: Consumer, going: watch::Receiver<bool>, later: Duration) -> Consumer {
    consumer.group_fn::<All, _, _>(move |order: Order, delivery: Delivery| {
        let mut going = going.clone();
        async move {
            if order.number == TROUBLED && delivery.attempt() == 0 {
                return Ok(Outcome::Later(later));
            }
            say(format_args!("started {}", order.number));
            let unfinished = Unfinished(order.number);
            going.wait_for(|go| *go).await?;
            std::mem::forget(unfinished);
            say(format_args!("finished {}", order.number));
            if order.number.is_multiple_of(2) { Ok(Outcome::Done) } else { Ok(Outcome::Dead("too late".to_owned())) }
        }
    })
}

/// What was handled is noted in the database, since a process that dies says nothing more.
fn dying<Db: Engine>(consumer: Consumer, pool: sqlx::Pool<Db>) -> Consumer {
    consumer.group_fn::<All, _, _>(move |order: Order, _| {
        let pool = pool.clone();
        async move {
            if order.number == 7 {
                std::process::abort();
            }
            // The others are at work when it happens.
            let mut work = interval(Duration::from_millis(30));
            work.tick().await;
            work.tick().await;
            Db::execute(&pool, format!("insert into handled (number) values ({})", order.number)).await;
            Ok(Outcome::Done)
        }
    })
}

async fn a_killed_consumer_loses_nothing_and_only_what_it_did_not_report_is_handled_again<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    orders.produce_batch(&Order::many(0..40)).await.expect("a batch can be produced");
    let mut killed = child(&world, "stick at 10");
    killed.expect("stuck", LIMIT).await;
    let reported = match Db::KIND {
        "postgres" => "select coalesce(sum(upper(d) - lower(d)), 0)::bigint from {}claim_lease_1, unnest(done) d",
        _ => "select coalesce(sum((value ->> 1) - (value ->> 0)), 0) from {}claim_lease_1, json_each(done)",
    };
    until("the report of ten messages", async || world.number(reported).await == 10).await;
    let mut other = child(&world, "handle");
    other.expect("running", LIMIT).await;

    killed.kill();
    let moment = Instant::now();
    assert_eq!(hear(&mut other, "handled", 30).await, (10..40).collect::<Vec<_>>());
    assert!(moment.elapsed() < SECONDS, "it took {:?}", moment.elapsed());
    world.settled::<All>().await;
    other.tell("stop");
    assert_eq!(other.expect("summary", LIMIT).await, "30 done, 0 dead");
}

/// A process that was frozen while it handled four fresh messages and one in trouble, which another one handled when
/// its lease was over.
async fn frozen<Db: Engine>(world: &World<Db>, meanwhile: impl Fn(&mut ChildProcess)) -> ChildProcess {
    let orders = world.producer::<Order>().await;
    let mut frozen = child(world, "wait");
    orders.produce(&Order::new(TROUBLED)).await.expect("an order can be produced");
    assert_eq!(hear(&mut frozen, "started", 1).await, [TROUBLED]);
    orders.produce_batch(&Order::many(0..4)).await.expect("a batch can be produced");
    assert_eq!(hear(&mut frozen, "started", 4).await, [0, 1, 2, 3]);
    frozen.freeze();
    meanwhile(&mut frozen);
    let mut other = child(world, "handle");
    assert_eq!(hear(&mut other, "handled", 5).await, [0, 1, 2, 3, TROUBLED]);
    let position = world.settled::<All>().await;
    assert_eq!((position.dead, position.ready, position.inflight), (0, 0, 0));
    other.tell("stop");
    assert_eq!(other.expect("summary", LIMIT).await, "5 done, 0 dead");
    frozen
}

async fn a_frozen_consumer_drops_what_it_lost_when_it_thaws_and_goes_on<Db: Engine>() {
    let world = World::<Db>::new().await;
    let mut frozen = frozen(&world, |_| {}).await;
    frozen.thaw();
    assert_eq!(hear(&mut frozen, "dropped", 5).await, [0, 1, 2, 3, TROUBLED]);
    // It is a consumer like any other again.
    frozen.tell("go");
    world.producer::<Order>().await.produce(&Order::new(6)).await.expect("an order can be produced");
    assert_eq!(hear(&mut frozen, "finished", 1).await, [6]);
    world.settled::<All>().await;
    frozen.tell("stop");
    let summary = frozen.expect("summary", LIMIT).await;
    assert_eq!(summary, "1 done, 0 dead");
}

async fn a_frozen_consumer_starts_nothing_that_it_lost_when_it_thaws<Db: Engine>() {
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let mut frozen = child(&world, "wait one by one");
    orders.produce(&Order::new(TROUBLED)).await.expect("an order can be produced");
    world.reaches::<All>("put one off", |position| position.ready == 1).await;
    orders.produce_batch(&Order::many(0..4)).await.expect("a batch can be produced");
    assert_eq!(hear(&mut frozen, "started", 1).await, [0]);
    // Behind it wait three fresh ones and one that is taken again.
    world.reaches::<All>("taken it again", |position| position.inflight == 1).await;
    frozen.freeze();
    let mut other = child(&world, "handle");
    assert_eq!(hear(&mut other, "handled", 5).await, [0, 1, 2, 3, TROUBLED]);
    world.settled::<All>().await;
    other.tell("stop");
    other.expect("summary", LIMIT).await;
    frozen.thaw();
    assert_eq!(hear(&mut frozen, "dropped", 1).await, [0]);
    frozen.tell("go");
    orders.produce(&Order::new(6)).await.expect("an order can be produced");
    assert_eq!(hear(&mut frozen, "finished", 1).await, [6]);
    world.settled::<All>().await;
    frozen.tell("stop");
    assert_eq!(frozen.expect("summary", LIMIT).await, "1 done, 0 dead");
}

async fn what_a_thawed_consumer_settles_late_changes_nothing<Db: Engine>() {
    let world = World::<Db>::new().await;
    // Its handlers end as soon as it thaws, three of them with a dead letter.
    let mut frozen = frozen(&world, |frozen| frozen.tell("go")).await;
    let before = world.position::<All>().await;
    frozen.thaw();
    frozen.tell("stop");
    frozen.expect("summary", LIMIT).await;
    assert_eq!(world.position::<All>().await, before);
    assert_eq!(world.number("select count(*) from {}claim_lease_1").await, 0);
    assert_eq!(world.number("select count(*) from {}exception_queue_1").await, 0);
}

async fn a_message_that_kills_its_process_again_and_again_ends_dead_alone<Db: Engine>() {
    let world = World::<Db>::new().await;
    world.execute("create table handled (number bigint not null)").await;
    let orders = world.producer::<Order>().await;
    let ids = orders.produce_batch(&Order::many(0..20)).await.expect("a batch can be produced");
    world.position::<All>().await;
    let mut lives = 0;
    loop {
        lives += 1;
        assert!(lives < 12, "it kills for ever");
        let mut process = child(&world, "die of 7");
        tokio::select! {
            status = process.ended(LIMIT) => assert!(!status.success(), "it ended by itself"),
            _ = world.settled::<All>() => break,
        }
    }
    let dead = world.letters::<All>().await;
    let dead: Vec<_> = dead.into_iter().map(|letter| (letter.id, letter.error)).collect();
    assert_eq!(dead, [(ids[7], "the process that handled it was lost 3 times".to_owned())], "after {lives} processes");
    let handled = world.numbers("select number from handled").await;
    let all: BTreeSet<i64> = handled.iter().copied().collect();
    assert_eq!(all, (0..20).filter(|number| *number != 7).collect(), "after {lives} processes");
    println!("{lives} processes, {} runs for 19 messages", handled.len());
}

async fn eight_consumers_handle_every_message_exactly_once<Db: Engine>() {
    const MESSAGES: u64 = 2000;
    let world = World::<Db>::new().await;
    let orders = world.producer::<Order>().await;
    let (sender, mut calls) = unbounded_channel();
    let mut consumers = Vec::new();
    for _ in 0..8 {
        let client = world.another_client().await;
        consumers.push((start(telling::<All>(client.consumer().concurrency(4), &sender)), client));
    }
    // Produced while they consume, in batches and one by one.
    for hundred in 0..MESSAGES / 100 {
        let batch = Order::many(hundred * 100..hundred * 100 + 90);
        orders.produce_batch(&batch).await.expect("a batch can be produced");
        for number in hundred * 100 + 90..hundred * 100 + 100 {
            orders.produce(&Order::new(number)).await.expect("an order can be produced");
        }
    }
    let handled = take(&mut calls, MESSAGES as usize).await;
    assert_eq!(numbers(&handled), (0..MESSAGES).collect::<Vec<_>>());
    assert!(handled.iter().all(|(_, delivery)| delivery.attempt() == 0));
    world.settled::<All>().await;
    let mut done = 0;
    for (consumer, client) in consumers {
        done += soon("the consumer's end", consumer.stop()).await[0].done;
        client.close().await;
    }
    assert_eq!(done, MESSAGES);
    assert!(calls.try_recv().is_err(), "a message was handled twice");
    assert_eq!(world.number("select count(*) from {}claim_lease_1").await, 0);
}
