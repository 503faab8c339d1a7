//! What a handler decides about a message.

use std::time::Duration;

/// Any error of a handler.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A handler's decision. An `Err` beside it means *retry*.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Handled; writes no row.
    Done,
    /// Never to be run again: a dead letter at once, with this text.
    Dead(String),
    /// To be run again after this long, without a strike.
    Later(Duration),
    /// Failed, as with an `Err`, and to be run again after a time that the handler chose: a downstream that said when
    /// to come back. At most the group's longest delay.
    Retry {
        /// The failure's text.
        error: String,
        /// How long from now.
        after: Duration,
    },
}

/// What became of one run of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    Retry {
        error: String,
        /// Chosen by the handler; else the group's backoff.
        after: Option<Duration>,
    },
    Dead {
        error: String,
    },
    Later {
        after: Duration,
    },
    /// Not run: an earlier message of its key is in trouble.
    Held,
}

impl Verdict {
    pub(crate) fn of(result: Result<Outcome, BoxError>) -> Self {
        match result {
            Ok(Outcome::Done) => Self::Done,
            Ok(Outcome::Dead(reason)) => Self::Dead { error: cut(reason) },
            Ok(Outcome::Later(after)) => Self::Later { after },
            Ok(Outcome::Retry { error, after }) => Self::Retry { error: cut(error), after: Some(after) },
            Err(error) => Self::Retry { error: cut(chain(error.as_ref())), after: None },
        }
    }

    pub(crate) fn retry(error: impl Into<String>) -> Self {
        Self::Retry { error: cut(error.into()), after: None }
    }

    pub(crate) fn dead(error: impl Into<String>) -> Self {
        Self::Dead { error: cut(error.into()) }
    }
}

const LONGEST_ERROR: usize = 1024;

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

/// U+0000 can't be stored as text in Postgres.
fn cut(text: String) -> String {
    let mut text = if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text };
    if text.len() > LONGEST_ERROR {
        let end = (0..=LONGEST_ERROR).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_kept_with_its_sources_and_cut_at_a_character() {
        let long = "ä".repeat(LONGEST_ERROR);
        match Verdict::of(Err(long.into())) {
            Verdict::Retry { error, .. } => assert_eq!(error.len(), LONGEST_ERROR),
            other => panic!("{other:?}"),
        }
    }
}
