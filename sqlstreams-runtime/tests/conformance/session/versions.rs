//! Rows of a version that a build can't read wait for a build that can: as a range, and in nobody's way.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams_runtime::{Consumer, Group, MessageId, Outcome};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::world::{Engine, World, group, on_both_databases, plain_stream, quick, soon, start};

on_both_databases! {
    rows_of_another_version_are_parked_as_one_range_and_a_build_that_reads_them_takes_them
    rows_of_two_versions_in_one_stretch_each_reach_a_build_that_reads_them_once
    a_message_in_trouble_waits_for_a_build_that_reads_its_version
    a_group_is_not_given_a_parked_message_that_it_is_not_bound_to
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Old {
    number: u64,
}
plain_stream!(Old, "bills", 1);

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct New {
    number: u64,
    total: u64,
}
plain_stream!(New, "bills", 2);

group!(OldReaders, Old, "readers", retry: quick(3));
group!(NewReaders, New, "readers", retry: quick(3));

type Handled = (u32, u64, MessageId);

fn old_build<Db: Engine>(world: &World<Db>, handled: &UnboundedSender<Handled>) -> Consumer {
    let handled = handled.clone();
    world.client.consumer().group_fn::<OldReaders, _, _>(move |bill, delivery| {
        let _ = handled.send((delivery.schema_version(), bill.number, delivery.message_id()));
        async { Ok(Outcome::Done) }
    })
}

fn new_build<Db: Engine>(world: &World<Db>, handled: &UnboundedSender<Handled>) -> Consumer {
    let handled = handled.clone();
    world.client.consumer().group_fn::<NewReaders, _, _>(move |bill, delivery| {
        assert_eq!(bill.total, bill.number * 10);
        assert_eq!((delivery.attempt(), delivery.failures()), (0, 0));
        let _ = handled.send((delivery.schema_version(), bill.number, delivery.message_id()));
        async { Ok(Outcome::Done) }
    })
}

fn old(numbers: std::ops::Range<u64>) -> Vec<Old> {
    numbers.map(|number| Old { number }).collect()
}

fn new(numbers: std::ops::Range<u64>) -> Vec<New> {
    numbers.map(|number| New { number, total: number * 10 }).collect()
}

async fn take(handled: &mut UnboundedReceiver<Handled>, count: usize) -> Vec<(u32, u64)> {
    let mut taken = Vec::with_capacity(count);
    for _ in 0..count {
        let (version, number, _) = soon("a bill", handled.recv()).await.expect("the consumer runs");
        taken.push((version, number));
    }
    taken.sort_unstable_by_key(|(_, number)| *number);
    taken
}

fn of_version(version: u32, numbers: std::ops::Range<u64>) -> Vec<(u32, u64)> {
    numbers.map(|number| (version, number)).collect()
}

async fn rows_of_another_version_are_parked_as_one_range_and_a_build_that_reads_them_takes_them<Db: Engine>() {
    let world = World::<Db>::new().await;
    let (olds, news) = (world.producer::<Old>().await, world.producer::<New>().await);
    let (sender, mut handled) = unbounded_channel();
    let running = start(old_build(&world, &sender).concurrency(4));
    olds.produce_batch(&old(0..10)).await.expect("bills can be produced");
    assert_eq!(take(&mut handled, 10).await, of_version(1, 0..10));
    let settled = world.settled::<OldReaders>().await.settled;
    // Far more than one claim takes, in several transactions. The first claims' ranges can't be stored yet, so that
    // several want to be at the same moment; on SQLite they never do.
    let mut holder = None;
    if Db::KIND == "postgres" {
        let mut tx = Db::begin(world.client.pool()).await;
        Db::execute_in(&mut tx, "lock table sqlstreams.parked_range_1 in share mode").await;
        holder = Some(tx);
    }
    for hundred in 0..20 {
        let bills = new(10 + hundred * 100..110 + hundred * 100);
        news.produce_batch(&bills).await.expect("bills can be produced");
        if hundred < 4 && holder.is_some() {
            world.reaches::<OldReaders>("claimed the newer bills", |position| position.claimed == position.head).await;
        } else if let Some(tx) = holder.take() {
            tx.rollback().await.expect("the transaction can be rolled back");
        }
    }
    olds.produce_batch(&old(2010..2020)).await.expect("bills can be produced");
    // Those behind are not blocked.
    assert_eq!(take(&mut handled, 10).await, of_version(1, 2010..2020));
    let position = world.reaches::<OldReaders>("no lease any more", |position| position.claimed == position.head).await;
    assert_eq!((position.settled, position.ready, position.dead), (settled, 0, 0));
    super::world::until("the parking of all that was claimed", async || {
        world.number("select count(*) from {}claim_lease_1").await == 0
    })
    .await;
    assert_eq!(world.position::<OldReaders>().await.parked, 1, "one stretch is one range");
    running.stop().await;

    // Two builds side by side, as in a rolling deploy: only the newer one gets them.
    let (old_running, new_running) = (start(old_build(&world, &sender)), start(new_build(&world, &sender)));
    assert_eq!(take(&mut handled, 2000).await, of_version(2, 10..2010));
    let position = world.settled::<OldReaders>().await;
    assert_eq!((position.parked, position.dead), (0, 0));
    assert_eq!(old_running.stop().await[0].done, 0);
    assert_eq!(new_running.stop().await[0].done, 2000);
    assert!(handled.try_recv().is_err(), "a bill was handled twice");
    assert_eq!(world.number("select count(*) from {}exception_queue_1").await, 0);
}

async fn rows_of_two_versions_in_one_stretch_each_reach_a_build_that_reads_them_once<Db: Engine>() {
    let world = World::<Db>::new().await;
    let (olds, news) = (world.producer::<Old>().await, world.producer::<New>().await);
    for number in 0..60 {
        if number % 2 == 0 {
            olds.produce(&Old { number }).await.expect("a bill can be produced");
        } else {
            news.produce(&New { number, total: number * 10 }).await.expect("a bill can be produced");
        }
    }
    let (sender, mut handled) = unbounded_channel();
    let running = start(new_build(&world, &sender));
    assert!(take(&mut handled, 30).await.iter().all(|(version, number)| *version == 2 && number % 2 == 1));
    world.reaches::<NewReaders>("parked the others", |position| position.parked > 0).await;
    let running_old = start(old_build(&world, &sender));
    assert!(take(&mut handled, 30).await.iter().all(|(version, number)| *version == 1 && number % 2 == 0));
    let position = world.settled::<NewReaders>().await;
    assert_eq!((position.parked, position.ready, position.dead), (0, 0, 0));
    assert_eq!((running.stop().await[0].done, running_old.stop().await[0].done), (30, 30));
    assert!(handled.try_recv().is_err(), "a bill was handled twice");
}

async fn a_message_in_trouble_waits_for_a_build_that_reads_its_version<Db: Engine>() {
    let world = World::<Db>::new().await;
    let (olds, news) = (world.producer::<Old>().await, world.producer::<New>().await);
    news.produce_batch(&new(0..3)).await.expect("bills can be produced");
    let failing = world
        .client
        .consumer()
        .group_fn::<NewReaders, _, _>(|_, _| async { Ok(Outcome::Later(std::time::Duration::from_millis(1500))) });
    let running = start(failing);
    world.reaches::<NewReaders>("three bills that wait", |position| position.ready == 3).await;
    running.stop().await;
    // An older build passes them by, also when they are due.
    let (sender, mut handled) = unbounded_channel();
    let running = start(old_build(&world, &sender));
    super::world::until("the bills' time", async || {
        let now = if Db::KIND == "postgres" { "clock_timestamp()" } else { "unixepoch('subsec') * 1000000" };
        let due =
            format!("select count(*) from {{}}exception_queue_1 where status = 'ready' and can_run_after < {now}");
        world.number(&due).await == 3
    })
    .await;
    olds.produce(&Old { number: 3 }).await.expect("a bill can be produced");
    assert_eq!(take(&mut handled, 1).await, [(1, 3)]);
    running.stop().await;
    assert_eq!(world.position::<OldReaders>().await.ready, 3);
    let consumer = world.client.consumer().group_fn::<NewReaders, _, _>(move |bill, delivery| {
        let _ = sender.send((delivery.schema_version(), bill.number, delivery.message_id()));
        async { Ok(Outcome::Done) }
    });
    let running = start(consumer);
    assert_eq!(take(&mut handled, 3).await, of_version(2, 0..3));
    world.settled::<NewReaders>().await;
    running.stop().await;
}

async fn a_group_is_not_given_a_parked_message_that_it_is_not_bound_to<Db: Engine>() {
    group!(Bound, New, "readers", bindings: &["bills.**"]);
    let world = World::<Db>::new().await;
    let news = world.producer::<New>().await;
    news.produce_batch(&new(0..3)).await.expect("bills can be produced");
    let (sender, mut handled) = unbounded_channel();
    let running = start(old_build(&world, &sender));
    world.reaches::<OldReaders>("parked the bills", |position| position.parked == 1).await;
    running.stop().await;
    // Their stream has no route, so that no binding is for them.
    let consumer = world.client.consumer().group_fn::<Bound, _, _>(move |bill, delivery| {
        let _ = sender.send((delivery.schema_version(), bill.number, delivery.message_id()));
        async { Ok(Outcome::Done) }
    });
    let running = start(consumer);
    let position = world.settled::<Bound>().await;
    assert_eq!(position.parked, 0);
    assert_eq!(running.stop().await[0].done, 0);
    assert!(handled.try_recv().is_err(), "a bill was handled that is not bound");
    assert_eq!(Bound::NAME, OldReaders::NAME);
}
