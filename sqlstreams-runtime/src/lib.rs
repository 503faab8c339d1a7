//! The runtime of sqlstreams: executes claims, leases and settlements on Postgres and SQLite. Depend on
//! `sqlstreams`, which re-exports what is for users.
//!
//! Left may not use right: vocabulary (`identity`, `time`, `message`, `group`, `delivery`, `outcome`,
//! `error`, `migrate`, `role`) < `backend` < `store` < `hub`, `register` < `produce`,
//! `consume`, `worker` < `dead_letters`, `replay`, `client`.
//!
//! | word | meaning |
//! |---|---|
//! | stream | an append-only, ordered log of messages |
//! | group | a named set of consumers that shares one position in a stream |
//! | cursor | a group's position |
//! | claim | the act of taking a range of ids; what is taken is a range lease |
//! | settle | to record outcomes and give the lease back |
//! | exception | a message that needs a row of its own: to be retried, delayed, or dead |
//! | dead letter | an exception whose retries are spent |
//! | parked range | ids of a version that this build can't read, kept for one that can |
//! | worker | a maintenance task of a stream or a group, run by one process at a time |
//! | presence | the row by which a consuming process is known to be alive |
#![cfg_attr(not(any(feature = "postgres", feature = "sqlite")), allow(dead_code))]

pub mod backend;
pub mod client;
pub mod consume;
mod database;
pub mod dead_letters;
pub mod delivery;
pub mod error;
pub mod group;
mod hub;
pub mod identity;
pub mod message;
pub mod migrate;
pub mod outcome;
pub mod produce;
mod register;
pub mod replay;
pub mod role;
mod store;
pub mod time;
pub mod worker;

pub use backend::{
    AttemptRow as Attempt, AttemptStatus, DeadLetterFilter, DeadLetterRow as DeadLetter, DiscardScope,
    LaneRow as BlockedKey, PositionRow as Position, ReplayTouched, StallCause, TroubleStatus, WorkerStateRow as Worker,
};
pub use client::{Client, ClientOptions, Producer};
pub use consume::{Consumer, GroupSummary, Stall};
pub use database::{Database, Roles};
pub use dead_letters::{DeadLetterErrors, DeadLetters, Inspected, RedriveGroup, RedrivePlan, Redriven};
pub use delivery::Delivery;
pub use error::{Error, Kind, Recovery};
pub use group::{Group, Handler};
pub use identity::{DelayedId, GroupName, MessageId, StreamName, WorkerId};
pub use message::{Headers, MessageKey, RouteSegment, SegmentError, Stream};
pub use outcome::{BoxError, Outcome};
pub use produce::{First, ProduceOptions, Produced};
pub use replay::{Drain, FastForwardOptions, Place, Replay, ReplayPlan, Replayed, RewindOptions};
pub use role::RoleKind;
pub use time::Timestamp;
pub use worker::Manager;

pub use schemars;
pub use serde;
pub use sqlstreams_schema as schema;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use sqlx;
