//! A subscriber that keeps what this crate's library traces: names of spans, and warnings.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// What was traced so far. Clones see the same.
#[derive(Clone, Default)]
pub struct Recorder {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    spans: Mutex<Vec<&'static str>>,
    warnings: Mutex<Vec<String>>,
    last_id: AtomicU64,
}

impl Recorder {
    /// The names of all spans, in the order of their beginnings.
    pub fn spans(&self) -> Vec<&'static str> {
        self.inner.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many spans of this name began.
    pub fn count(&self, name: &str) -> usize {
        self.spans().iter().filter(|span| **span == name).count()
    }

    /// Warnings and errors, with their fields.
    pub fn warnings(&self) -> Vec<String> {
        self.inner.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("sqlstreams_runtime")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.inner.spans.lock().unwrap_or_else(PoisonError::into_inner).push(span.metadata().name());
        Id::from_u64(self.inner.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn event(&self, event: &Event<'_>) {
        if *event.metadata().level() > Level::WARN {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        self.inner.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a text can't fail.
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
