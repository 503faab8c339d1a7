//! A group's bindings in this process. The stored ones are in force; those of a new build wait until no live process
//! declares the stored ones any more. So a rolling deploy changes them once, and not message by message.

use std::sync::{Arc, Mutex};

use tokio::sync::{RwLock, RwLockWriteGuard};

use super::session::lock;
use crate::backend::{BindingHold, BindingRow};

/// The bindings in force, and what this process declares.
pub(crate) struct Bindings {
    state: Mutex<State>,
    /// Held for writing while this process may be storing what it declares: a range that it takes meanwhile may be
    /// one of the new bindings.
    changing: RwLock<()>,
}

struct State {
    in_force: Arc<Vec<String>>,
    /// `None` once the declaration was replaced by a newer one: then the stored bindings are followed.
    declared: Option<Vec<String>>,
    hold: Option<BindingHold>,
}

/// What became of this process's declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing new.
    Nothing,
    /// The declared bindings are in force now.
    InForce,
    /// They wait, and the reason is another one.
    Waits(BindingHold),
    /// A newer declaration was stored while this process was away.
    Withdrawn,
}

impl Bindings {
    /// After a registration that answered `stored`.
    pub(crate) fn new(declared: &[String], stored: BindingRow) -> Self {
        let declared = Some(BindingRow::sorted(declared));
        let state = State { in_force: Arc::new(stored.patterns), declared, hold: stored.hold };
        Self { state: Mutex::new(state), changing: RwLock::default() }
    }

    /// What a range is read with that was taken just now.
    pub(crate) async fn of_claim(&self) -> Arc<Vec<String>> {
        let _unchanged = self.changing.read().await;
        self.in_force()
    }

    /// Keeps ranges that are taken from now on waiting until it is dropped.
    pub(crate) async fn changing(&self) -> RwLockWriteGuard<'_, ()> {
        self.changing.write().await
    }

    fn in_force(&self) -> Arc<Vec<String>> {
        Arc::clone(&lock(&self.state).in_force)
    }

    /// What this process declares; `None` when it follows.
    pub(crate) fn declared(&self) -> Option<Vec<String>> {
        lock(&self.state).declared.clone()
    }

    /// What to ask the database for. Whose declaration was in force asks only: if it was replaced meanwhile, it is the
    /// older one, and must not be stored again.
    pub(crate) fn asks_for(&self) -> Option<Vec<String>> {
        if self.are_held() { None } else { self.declared() }
    }

    /// Whether what is in force is what this process declares: then nobody changes it as long as this process lives.
    pub(crate) fn are_held(&self) -> bool {
        let state = lock(&self.state);
        state.declared.as_ref() == Some(&*state.in_force)
    }

    /// Takes note of what is stored.
    pub(crate) fn take(&self, stored: BindingRow) -> Change {
        let mut state = lock(&self.state);
        let held = state.declared.as_ref() == Some(&*state.in_force);
        let hold = std::mem::replace(&mut state.hold, stored.hold.clone());
        let is_declared = state.declared.as_ref() == Some(&stored.patterns);
        if *state.in_force != stored.patterns {
            state.in_force = Arc::new(stored.patterns);
        }
        match stored.hold {
            _ if is_declared => {
                if held {
                    Change::Nothing
                } else {
                    Change::InForce
                }
            }
            _ if held => {
                state.declared = None;
                state.hold = None;
                Change::Withdrawn
            }
            Some(reason) if hold.as_ref() != Some(&reason) => Change::Waits(reason),
            _ => Change::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(patterns: &[&str], hold: Option<BindingHold>) -> BindingRow {
        BindingRow { patterns: patterns.iter().map(|&pattern| pattern.to_owned()).collect(), hold }
    }

    fn old() -> Option<BindingHold> {
        Some(BindingHold::Declared("old".to_owned()))
    }

    #[test]
    fn declared_bindings_wait_until_they_are_stored() {
        let bindings = Bindings::new(&["b".to_owned(), "a".to_owned()], stored(&["x"], old()));
        assert_eq!((bindings.in_force().as_slice(), bindings.are_held()), (&["x".to_owned()][..], false));
        assert_eq!(bindings.take(stored(&["x"], old())), Change::Nothing);
        assert_eq!(bindings.take(stored(&["x"], Some(BindingHold::Abandoned))), Change::Waits(BindingHold::Abandoned));
        assert_eq!(bindings.take(stored(&["a", "b"], None)), Change::InForce);
        assert!(bindings.are_held());
        assert_eq!(bindings.take(stored(&["a", "b"], None)), Change::Nothing);
    }

    #[test]
    fn a_declaration_that_was_replaced_is_withdrawn_for_good() {
        let bindings = Bindings::new(&["a".to_owned()], stored(&["a"], None));
        assert_eq!(bindings.take(stored(&["x"], old())), Change::Withdrawn);
        assert_eq!((bindings.declared(), bindings.asks_for()), (None, None));
        assert_eq!(bindings.take(stored(&["y"], None)), Change::Nothing);
        assert_eq!(bindings.in_force().as_slice(), ["y"]);
        assert_eq!(bindings.take(stored(&["a"], None)), Change::Nothing);
        assert!(!bindings.are_held());
    }
}
