use std::fmt;

use crate::automaton::{self, Alphabet, Automaton, SymbolSet};
use crate::pattern::check_pattern;
use crate::text::{Segments, bytes_eq, count_segments, has_blank_or_control};

/// The most segments that a route or a pattern has.
pub const MAX_SEGMENTS: usize = 32;

/// The longest segment of a routing key, in bytes.
pub const MAX_SEGMENT_BYTES: usize = 100;

/// The routing keys that a stream's messages can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The template as declared, for messages.
    pub template: &'static str,
    /// The segments of the template. None of them: the stream has no route.
    pub segments: &'static [RoutePart],
}

/// One segment of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutePart {
    /// Every key has this text here.
    Literal(&'static str),
    /// The value of a field of the payload.
    Field {
        /// The field's name.
        name: &'static str,
        /// The values that the field's type declares; `None` when any segment is possible.
        values: Option<&'static [&'static str]>,
    },
}

impl Route {
    /// A stream whose messages have no routing key.
    pub const NONE: Route = Route { template: "", segments: &[] };

    /// Whether the stream has no route.
    pub const fn is_none(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether some key of this route is matched by the pattern; `false` for what is not a pattern.
    pub const fn can_match(&self, pattern: &str) -> bool {
        if self.is_unusable() || check_pattern(pattern).is_err() {
            return false;
        }
        let mut alphabet = Alphabet::new();
        let automaton = Automaton::new(pattern, &mut alphabet);
        let symbols = self.symbols(&alphabet);
        automaton::can_match(&automaton, &symbols, self.segments.len())
    }

    /// Whether every key of this route that `narrow` matches is also matched by `wide`.
    ///
    /// Exact up to a bound on the simultaneous cases of the proof that hand-written patterns do not come
    /// near; beyond it, as for what is not a pattern, the answer is `false`.
    pub const fn covers(&self, wide: &str, narrow: &str) -> bool {
        if self.is_unusable() || check_pattern(wide).is_err() || check_pattern(narrow).is_err() {
            return false;
        }
        self.covers_checked(wide, narrow)
    }

    /// As `covers`, for what is known to be patterns.
    const fn covers_checked(&self, wide: &str, narrow: &str) -> bool {
        let mut alphabet = Alphabet::new();
        let wide = Automaton::new(wide, &mut alphabet);
        let narrow = Automaton::new(narrow, &mut alphabet);
        let symbols = self.symbols(&alphabet);
        automaton::includes(&wide, &narrow, &symbols, self.segments.len())
    }

    /// Whether the key is one that a message of this stream can have.
    pub const fn accepts(&self, key: &str) -> bool {
        if self.is_none() || count_segments(key) != self.segments.len() {
            return false;
        }
        let mut segments = Segments::new(key);
        let mut i = 0;
        while let Some(segment) = segments.next() {
            if !self.segments[i].accepts(segment) {
                return false;
            }
            i += 1;
        }
        true
    }

    const fn is_unusable(&self) -> bool {
        self.is_none() || self.segments.len() > MAX_SEGMENTS
    }

    const fn symbols(&self, alphabet: &Alphabet<'_>) -> [SymbolSet; MAX_SEGMENTS] {
        let mut sets = [0; MAX_SEGMENTS];
        let mut i = 0;
        while i < self.segments.len() {
            sets[i] = match self.segments[i] {
                RoutePart::Literal(text) => alphabet.symbol(text.as_bytes()),
                RoutePart::Field { values: None, .. } => alphabet.all(),
                RoutePart::Field { values: Some(values), .. } => alphabet.symbols(values),
            };
            i += 1;
        }
        sets
    }
}

impl RoutePart {
    pub(crate) const fn accepts(&self, segment: &[u8]) -> bool {
        match self {
            RoutePart::Literal(text) => bytes_eq(text.as_bytes(), segment),
            RoutePart::Field { values: None, .. } => check_segment_bytes(segment).is_ok(),
            RoutePart::Field { values: Some(values), .. } => contains(values, segment),
        }
    }
}

const fn contains(values: &[&str], segment: &[u8]) -> bool {
    let mut i = 0;
    while i < values.len() {
        if bytes_eq(values[i].as_bytes(), segment) {
            return true;
        }
        i += 1;
    }
    false
}

/// Checks the value of one segment of a routing key.
///
/// # Errors
///
/// The first rule that the value breaks.
pub const fn check_segment(value: &str) -> Result<(), SegmentProblem> {
    check_segment_bytes(value.as_bytes())
}

pub(crate) const fn check_segment_bytes(value: &[u8]) -> Result<(), SegmentProblem> {
    let len = value.len();
    if len == 0 {
        return Err(SegmentProblem::Empty);
    }
    if len > MAX_SEGMENT_BYTES {
        return Err(SegmentProblem::TooLong);
    }
    let mut i = 0;
    let mut is_plain = true;
    while i < len {
        match value[i] {
            b'.' => return Err(SegmentProblem::Dot),
            b'*' => return Err(SegmentProblem::Star),
            b'!'..=b'~' => {}
            _ => is_plain = false,
        }
        i += 1;
    }
    if !is_plain && has_blank_or_control(value) {
        return Err(SegmentProblem::BlankOrControl);
    }
    Ok(())
}

/// The rule that a segment of a routing key breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentProblem {
    /// The segment has no characters.
    Empty,
    /// The segment has more than [`MAX_SEGMENT_BYTES`] bytes.
    TooLong,
    /// The segment holds a dot.
    Dot,
    /// The segment holds a star.
    Star,
    /// The segment holds white space or a control character.
    BlankOrControl,
}

impl SegmentProblem {
    /// Says the rule.
    pub const fn text(&self) -> &'static str {
        match self {
            SegmentProblem::Empty => "a segment of a routing key has at least one character",
            SegmentProblem::TooLong => "a segment of a routing key has at most 100 bytes",
            SegmentProblem::Dot => "a segment of a routing key has no `.`, which divides segments",
            SegmentProblem::Star => "a segment of a routing key has no `*`, which patterns use for any segment",
            SegmentProblem::BlankOrControl => "a segment of a routing key has no white space or control character",
        }
    }
}

impl fmt::Display for SegmentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for SegmentProblem {}

#[cfg(test)]
mod tests;
