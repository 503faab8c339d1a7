//! A flag that is raised once. Hot paths ask it without a lock; others wait for it.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Signal {
    raised: AtomicBool,
    waiters: Notify,
}

impl Signal {
    pub(crate) fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        self.waiters.notify_waiters();
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Returns when it is raised, at once if it was.
    pub(crate) async fn raised(&self) {
        loop {
            // Made before the look: whoever raises in between wakes it.
            let notified = self.waiters.notified();
            if self.is_raised() {
                return;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_waiter_and_a_latecomer_both_see_it() {
        let signal = Arc::new(Signal::default());
        let waiter = tokio::spawn({
            let signal = Arc::clone(&signal);
            async move { signal.raised().await }
        });
        signal.raise();
        waiter.await.expect("the waiter ends");
        signal.raised().await;
        assert!(signal.is_raised());
    }
}
