//! What a declaration says meets what is stored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams_runtime::{Error, Kind, Outcome, Recovery};
use tokio::sync::mpsc::unbounded_channel;

use super::world::{
    All, Engine, Order, World, group, numbers, on_both_databases, plain_stream, soon, start, take, telling,
};

on_both_databases! {
    a_build_that_declares_another_shape_for_a_stored_version_is_refused_with_the_difference
    a_changed_comment_order_of_fields_or_name_of_a_type_is_no_other_shape
    a_stream_that_is_declared_with_another_key_is_refused
    a_missing_installation_is_refused_with_what_to_do
    an_installation_can_be_migrated_twice_and_side_by_side
    a_consumer_without_a_group_is_refused
    a_group_that_is_added_twice_is_refused
    two_groups_of_one_name_on_two_streams_are_two_groups
    a_client_that_was_closed_says_so
}

mod first {
    use super::*;

    /// What a customer told us.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct Opinion {
        /// From 1 to 5.
        pub stars: u8,
        pub text: Option<String>,
        pub author: Author,
    }
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct Author {
        pub name: String,
    }
    plain_stream!(Opinion, "opinions", 1);
}

/// The same on the wire.
mod same {
    use super::*;

    /// A review.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[schemars(title = "Review of a customer")]
    pub struct Review {
        /// Who wrote it.
        pub author: Person,
        pub text: Option<String>,
        /// From one to five.
        pub stars: u8,
    }
    /// A person.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct Person {
        /// Their name.
        pub name: String,
    }
    plain_stream!(Review, "opinions", 1);
}

mod other_type {
    use super::*;

    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct Opinion {
        pub stars: String,
        pub text: Option<String>,
        pub author: first::Author,
    }
    plain_stream!(Opinion, "opinions", 1);
}

mod other_field {
    use super::*;

    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct Opinion {
        pub stars: u8,
        pub text: Option<String>,
        pub author: Author,
    }
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct Author {
        pub name: String,
        pub mail: String,
    }
    plain_stream!(Opinion, "opinions", 1);
}

mod next_version {
    use super::*;

    #[derive(Serialize, Deserialize, JsonSchema)]
    pub struct Opinion {
        pub stars: String,
    }
    plain_stream!(Opinion, "opinions", 2);
}

fn refusal<T>(result: Result<T, Error>) -> Error {
    match result {
        Ok(_) => panic!("the declaration is refused"),
        Err(err) => err,
    }
}

async fn a_build_that_declares_another_shape_for_a_stored_version_is_refused_with_the_difference<Db: Engine>() {
    group!(OtherType, other_type::Opinion, "readers");
    let world = World::<Db>::new().await;
    world.producer::<first::Opinion>().await;
    let err = refusal(world.client.producer::<other_type::Opinion>().await);
    assert_eq!((err.kind(), err.code(), err.recovery()), (Kind::Declaration, "SQLS-0307", Recovery::Permanent));
    let text = err.to_string();
    assert!(text.contains("version 1 of stream \"opinions\"") && text.contains("declare version 2"), "{text}");
    assert!(text.contains("`stars`"), "{text}");
    let text = refusal(world.client.producer::<other_field::Opinion>().await).to_string();
    assert!(text.contains("author") && text.contains("mail"), "{text}");
    // Consumers and questions register as well.
    let consumer = world.client.consumer().group_fn::<OtherType, _, _>(|_, _| async { unreachable!() });
    assert_eq!(refusal(start(consumer).end().await).code(), "SQLS-0307");
    assert_eq!(refusal(world.client.position::<OtherType>().await).code(), "SQLS-0307");
    // What is stored stays, and another version is welcome.
    world.producer::<first::Opinion>().await;
    world.producer::<next_version::Opinion>().await;
    assert_eq!(
        world.numbers("select cast(schema_version as bigint) from {}stream_version_config order by 1").await,
        [1, 2]
    );
}

async fn a_changed_comment_order_of_fields_or_name_of_a_type_is_no_other_shape<Db: Engine>() {
    group!(Readers, first::Opinion, "readers");
    let world = World::<Db>::new().await;
    world.producer::<first::Opinion>().await;
    let reviews = world.producer::<same::Review>().await;
    let person = || same::Person { name: "Ada".to_owned() };
    reviews.produce(&same::Review { author: person(), text: None, stars: 4 }).await.expect("a review can be produced");
    let (sender, mut stars) = unbounded_channel();
    let consumer = world.client.consumer().group_fn::<Readers, _, _>(move |opinion, _| {
        let _ = sender.send((opinion.stars, opinion.author.name));
        async { Ok(Outcome::Done) }
    });
    let running = start(consumer);
    assert_eq!(soon("the opinion", stars.recv()).await, Some((4, "Ada".to_owned())));
    running.stop().await;
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Keyless {
    number: u64,
    region: String,
    kind: String,
    note: String,
}
plain_stream!(Keyless, "orders", 1);

async fn a_stream_that_is_declared_with_another_key_is_refused<Db: Engine>() {
    let world = World::<Db>::new().await;
    world.producer::<Order>().await;
    let err = refusal(world.client.producer::<Keyless>().await);
    assert_eq!(err.code(), "SQLS-0306");
    let text = err.to_string();
    assert!(text.contains("stored with key `number`") && text.contains("declared with no key"), "{text}");
}

async fn a_missing_installation_is_refused_with_what_to_do<Db: Engine>() {
    let world = World::<Db>::unmigrated().await;
    let (sender, _calls) = unbounded_channel();
    let producing = refusal(world.client.producer::<Order>().await);
    let consuming = refusal(start(telling::<All>(world.client.consumer(), &sender)).end().await);
    for err in [producing, consuming] {
        assert_eq!((err.kind(), err.code(), err.recovery()), (Kind::Migration, "SQLS-0403", Recovery::Permanent));
        assert!(err.to_string().contains("run `client.migrate()` once"), "{err}");
    }
    for err in
        [refusal(world.client.position::<All>().await), refusal(world.client.dead_letters::<All>().await.map(drop))]
    {
        assert_eq!(err.kind(), Kind::Migration, "{err}");
        assert!(err.to_string().contains("run `client.migrate()` once"), "{err}");
    }
    world.client.migrate().await.expect("a fresh installation can be migrated");
    world.producer::<Order>().await;
}

async fn an_installation_can_be_migrated_twice_and_side_by_side<Db: Engine>() {
    let world = World::<Db>::unmigrated().await;
    let others = [world.another_client().await, world.another_client().await, world.another_client().await];
    let migrations = futures_util::future::join_all(others.iter().map(|client| client.migrate())).await;
    assert!(migrations.iter().all(Result::is_ok), "{migrations:?}");
    world.client.migrate().await.expect("an installation can be migrated again");
    let orders = world.producer::<Order>().await;
    orders.produce(&Order::new(1)).await.expect("an order can be produced");
    world.client.migrate().await.expect("an installation can be migrated again");
    assert_eq!(world.number("select count(*) from {}message_log_1").await, 1);
}

async fn a_consumer_without_a_group_is_refused<Db: Engine>() {
    let world = World::<Db>::new().await;
    let err = refusal(start(world.client.consumer()).end().await);
    assert_eq!((err.kind(), err.code()), (Kind::Declaration, "SQLS-0312"));
    assert!(err.to_string().contains("add one with `.group("), "{err}");
}

async fn a_group_that_is_added_twice_is_refused<Db: Engine>() {
    group!(AlsoAll, Order, "all");
    let world = World::<Db>::new().await;
    let (sender, _calls) = unbounded_channel();
    let consumer = telling::<AlsoAll>(telling::<All>(world.client.consumer(), &sender), &sender);
    let err = refusal(start(consumer).end().await);
    assert_eq!((err.kind(), err.code()), (Kind::Declaration, "SQLS-0313"));
    assert!(err.to_string().contains("\"all\"") && err.to_string().contains("\"orders\""), "{err}");
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Return {
    number: u64,
}
plain_stream!(Return, "returns", 1);
group!(AllReturns, Return, "all");

async fn two_groups_of_one_name_on_two_streams_are_two_groups<Db: Engine>() {
    let world = World::<Db>::new().await;
    let (orders, returns) = (world.producer::<Order>().await, world.producer::<Return>().await);
    let (sender, mut calls) = unbounded_channel();
    let (returned, mut returned_calls) = unbounded_channel();
    let consumer =
        telling::<All>(world.client.consumer(), &sender).group_fn::<AllReturns, _, _>(move |message, delivery| {
            let _ = returned.send((message.number, delivery.stream().to_owned()));
            async { Ok(Outcome::Done) }
        });
    let running = start(consumer);
    orders.produce(&Order::new(1)).await.expect("an order can be produced");
    returns.produce(&Return { number: 2 }).await.expect("a return can be produced");
    assert_eq!(numbers(&take(&mut calls, 1).await), [1]);
    assert_eq!(soon("the return", returned_calls.recv()).await, Some((2, "returns".to_owned())));
    let summaries = running.stop().await;
    assert_eq!(summaries.iter().map(|group| group.done).collect::<Vec<_>>(), [1, 1]);
}

async fn a_client_that_was_closed_says_so<Db: Engine>() {
    let world = World::<Db>::new().await;
    world.client.close().await;
    let err = refusal(world.client.position::<All>().await);
    assert_eq!((err.kind(), err.recovery()), (Kind::Shutdown, Recovery::Permanent), "{err}");
}
