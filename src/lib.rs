//! Typed streams on the database that you already have: a log with cursors, and a queue with retries and
//! dead letters, on Postgres and on embedded SQLite. A message that succeeds costs no row; one that fails
//! gets a full lifecycle.
//!
//! A stream is declared once, on its payload; so is a group, on its handler. Routing keys, bindings and
//! combinations are checked by the compiler.
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use sqlstreams::{BoxError, Client, Delivery, Group, Handler, Outcome, RouteSegment, Sqlite, Stream};
//!
//! #[derive(Serialize, Deserialize, JsonSchema, RouteSegment)]
//! #[serde(rename_all = "lowercase")]
//! enum Region { Eu, Us }
//!
//! #[derive(Serialize, Deserialize, JsonSchema, Stream)]
//! #[stream(name = "orders.placed", version = 1, route = "orders.{region}.placed")]
//! struct OrderPlaced { region: Region, total_cents: i64 }
//!
//! #[derive(Group)]
//! #[group(name = "email-receipts", stream = OrderPlaced, bind = "orders.eu.*")]
//! struct EmailReceipts { handled: tokio::sync::mpsc::UnboundedSender<i64> }
//!
//! impl Handler for EmailReceipts {
//!     async fn handle(&self, order: OrderPlaced, _delivery: Delivery) -> Result<Outcome, BoxError> {
//!         self.handled.send(order.total_cents)?;
//!         Ok(Outcome::Done)
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), BoxError> {
//! let folder = tempfile::tempdir()?;
//! let url = format!("sqlite://{}?mode=rwc", folder.path().join("orders.db").display());
//! let client = Client::<Sqlite>::connect(&url).await?;
//! client.migrate().await?;
//!
//! let orders = client.producer::<OrderPlaced>().await?;
//! orders.produce(&OrderPlaced { region: Region::Eu, total_cents: 1999 }).await?;
//!
//! let (handled, mut receipts) = tokio::sync::mpsc::unbounded_channel();
//! let shutdown = async move { assert_eq!(receipts.recv().await, Some(1999)) };
//! client.consumer().group(EmailReceipts { handled }).run_until(shutdown).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | feature | what it brings |
//! |---|---|
//! | `sqlite` (default) | `Client<Sqlite>`: one database file, no server |
//! | `postgres` | `Client<Postgres>`: Postgres 15 and later |
//! | `tls-rustls`, `tls-native` | encrypted connections to Postgres, as sqlx offers them |

pub use sqlstreams_derive::{Group, MessageKey, RouteSegment, Stream, bind, route};
pub use sqlstreams_runtime::migrate::Migration;
pub use sqlstreams_runtime::schema::Start;
pub use sqlstreams_runtime::{
    Attempt, AttemptStatus, BlockedKey, BoxError, Client, ClientOptions, Consumer, Database, DeadLetter,
    DeadLetterErrors, DeadLetterFilter, DeadLetters, DelayedId, Delivery, DiscardScope, Drain, Error,
    FastForwardOptions, First, Group, GroupName, GroupSummary, Handler, Headers, Inspected, Kind, Manager, MessageId,
    MessageKey, Outcome, Place, Position, ProduceOptions, Produced, Producer, Recovery, RedriveGroup, RedrivePlan,
    Redriven, Replay, ReplayPlan, ReplayTouched, Replayed, RewindOptions, RoleKind, Roles, RouteSegment, SegmentError,
    Stall, StallCause, Stream, StreamName, Timestamp, TroubleStatus, Worker, WorkerId,
};

/// The sqlx that this crate is built with: take transactions and pools from it.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use sqlstreams_runtime::sqlx;

#[cfg(feature = "postgres")]
pub use sqlstreams_runtime::sqlx::Postgres;
#[cfg(feature = "sqlite")]
pub use sqlstreams_runtime::sqlx::Sqlite;

/// The schemars that this crate is built with: `#[schemars(crate = "sqlstreams::schemars")]` spares a dependency.
pub use sqlstreams_runtime::schemars;

/// What generated code may name. Not for people; changes without notice.
#[doc(hidden)]
pub mod __private {
    pub use sqlstreams_runtime::schema::*;
    pub use sqlstreams_runtime::{Group, MessageKey, RouteSegment, SegmentError, Stream};
    pub use sqlstreams_runtime::{schemars, serde};
    pub use std::borrow::Cow;
    pub use std::option::Option;
    pub use std::result::Result;
    pub use std::string::String;
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
