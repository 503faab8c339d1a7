//! Groups and their handlers.

use std::future::Future;

use sqlstreams_schema::GroupConfig;

use crate::delivery::Delivery;
use crate::message::Stream;
use crate::outcome::{BoxError, Outcome};

/// A named set of consumers that shares one position in a stream. Implemented by `#[derive(Group)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a consumer group",
    label = "add `#[derive(Group)]` and `#[group(name = \"…\", stream = …)]` to `{Self}`"
)]
pub trait Group: Send + Sync + 'static {
    /// The payload type that the group reads.
    type Stream: Stream;
    /// The group's name.
    const NAME: &'static str;
    /// What the group declares beside its name.
    const CONFIG: GroupConfig;
}

/// Handles one message at a time.
#[diagnostic::on_unimplemented(
    message = "group `{Self}` has no handler",
    label = "write `impl Handler for {Self} {{ async fn handle(&self, message: …, delivery: Delivery) -> Result<Outcome, BoxError> {{ … }} }}`"
)]
pub trait Handler: Group {
    /// Handles `message`. An error means retry, by the group's policy.
    ///
    /// # Cancellation
    /// The future is dropped when the group's timeout is over, when the process lost its lease, and when
    /// a shutdown takes longer than its bound. The message is then handled again.
    fn handle(
        &self,
        message: Self::Stream,
        delivery: Delivery,
    ) -> impl Future<Output = Result<Outcome, BoxError>> + Send;
}
