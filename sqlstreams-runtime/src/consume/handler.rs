//! Handlers behind one type: the engine is compiled once and not for each payload.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use super::decode::decode;
use crate::delivery::Delivery;
use crate::group::{Group, Handler};
use crate::outcome::{BoxError, Outcome};

pub(crate) type Handling = Pin<Box<dyn Future<Output = Result<Outcome, BoxError>> + Send>>;

/// Decodes and handles; the error is a payload that does not decode.
pub(crate) trait Dispatch: Send + Sync + 'static {
    fn dispatch(self: Arc<Self>, delivery: Delivery) -> Result<Handling, String>;
}

pub(crate) struct Typed<H>(pub(crate) H);

impl<H: Handler> Dispatch for Typed<H> {
    fn dispatch(self: Arc<Self>, delivery: Delivery) -> Result<Handling, String> {
        let message = decode::<H::Stream>(&delivery.message)?;
        Ok(Box::pin(async move { self.0.handle(message, delivery).await }))
    }
}

pub(crate) struct Closure<G, F> {
    handle: F,
    group: PhantomData<fn() -> G>,
}

impl<G, F> Closure<G, F> {
    pub(crate) fn new(handle: F) -> Self {
        Self { handle, group: PhantomData }
    }
}

impl<G, F, R> Dispatch for Closure<G, F>
where
    G: Group,
    F: Fn(G::Stream, Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome, BoxError>> + Send + 'static,
{
    fn dispatch(self: Arc<Self>, delivery: Delivery) -> Result<Handling, String> {
        let message = decode::<G::Stream>(&delivery.message)?;
        Ok(Box::pin(async move { (self.handle)(message, delivery).await }))
    }
}
