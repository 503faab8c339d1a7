use std::fmt;

use crate::route::{MAX_SEGMENTS, SegmentProblem, check_segment_bytes};
use crate::text::{Segments, bytes_eq};

/// Checks a binding pattern: segments divided by dots, where `*` is any one segment and `**` any number of
/// them, also none.
///
/// # Errors
///
/// The first rule that the pattern breaks.
pub const fn check_pattern(pattern: &str) -> Result<(), PatternProblem> {
    let mut segments = Segments::new(pattern);
    let mut count = 0;
    while let Some(segment) = segments.next() {
        if !is_star(segment) && !is_double_star(segment) {
            match check_segment_bytes(segment) {
                Ok(()) => {}
                Err(SegmentProblem::Empty) => return Err(PatternProblem::EmptySegment),
                Err(SegmentProblem::Star) => return Err(PatternProblem::PartialStar),
                Err(SegmentProblem::TooLong) => return Err(PatternProblem::SegmentTooLong),
                Err(_) => return Err(PatternProblem::BlankOrControl),
            }
        }
        count += 1;
    }
    if count == 0 {
        return Err(PatternProblem::Empty);
    }
    if count > MAX_SEGMENTS {
        return Err(PatternProblem::TooManySegments);
    }
    Ok(())
}

const fn is_star(segment: &[u8]) -> bool {
    bytes_eq(segment, b"*")
}

const fn is_double_star(segment: &[u8]) -> bool {
    bytes_eq(segment, b"**")
}

/// Whether the pattern matches the routing key. An empty key has no segments; an empty segment between dots
/// is matched by nothing.
pub const fn pattern_matches(pattern: &str, key: &str) -> bool {
    let mut key = Segments::new(key);
    let mut pattern = Segments::new(pattern);
    // Where to go on after a mismatch: behind the last `**`, which then takes one more segment.
    let mut retry: Option<(Segments<'_>, Segments<'_>)> = None;
    loop {
        let mut ahead = pattern.copy();
        let expected = ahead.next();
        if let Some(segment) = expected
            && is_double_star(segment)
        {
            pattern = ahead;
            retry = Some((pattern.copy(), key.copy()));
            continue;
        }
        let value = key.next();
        let fits = match (expected, value) {
            (None, None) => return true,
            (Some(segment), Some(value)) => !value.is_empty() && (is_star(segment) || bytes_eq(segment, value)),
            (None, Some(_)) => false,
            (Some(_), None) => return false,
        };
        if fits {
            pattern = ahead;
            continue;
        }
        let Some((behind, mut rest)) = retry else {
            return false;
        };
        match rest.next() {
            None | Some([]) => return false,
            Some(_) => {}
        }
        pattern = behind.copy();
        key = rest.copy();
        retry = Some((behind, rest));
    }
}

/// Writes the pattern as an anchored regular expression for Postgres, which accepts the keys that
/// [`pattern_matches`] accepts.
pub fn pattern_to_regex(pattern: &str) -> String {
    let mut segments: Vec<&str> = pattern.split('.').collect();
    segments.dedup_by(|next, previous| *next == "**" && *previous == "**");
    if segments == ["**"] {
        return r"^(?:[^.]+(?:\.[^.]+)*)?$".to_owned();
    }
    let mut regex = String::from("^");
    let mut needs_dot = false;
    for segment in segments {
        match (segment, needs_dot) {
            ("**", false) => regex.push_str(r"(?:[^.]+\.)*"),
            ("**", true) => regex.push_str(r"(?:\.[^.]+)*"),
            _ => {
                if needs_dot {
                    regex.push_str(r"\.");
                }
                push_segment(&mut regex, segment);
                needs_dot = true;
            }
        }
    }
    regex.push('$');
    regex
}

fn push_segment(regex: &mut String, segment: &str) {
    if segment == "*" {
        regex.push_str("[^.]+");
        return;
    }
    for character in segment.chars() {
        if r"\.[]{}()*+?^$|".contains(character) {
            regex.push('\\');
        }
        regex.push(character);
    }
}

/// The rule that a pattern breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternProblem {
    /// The pattern has no characters.
    Empty,
    /// Two dots touch, or a dot stands at an end.
    EmptySegment,
    /// A star stands beside other characters, or there are more than two.
    PartialStar,
    /// A segment has more bytes than a segment of a routing key.
    SegmentTooLong,
    /// A segment holds white space or a control character.
    BlankOrControl,
    /// The pattern has more than [`MAX_SEGMENTS`] segments.
    TooManySegments,
}

impl PatternProblem {
    /// Says the rule.
    pub const fn text(&self) -> &'static str {
        match self {
            PatternProblem::Empty => "a pattern has at least one segment, such as `**` for every key",
            PatternProblem::EmptySegment => "a dot in a pattern stands between two segments",
            PatternProblem::PartialStar => {
                "`*` stands for one whole segment and `**` for any number of them, not for part of one"
            }
            PatternProblem::SegmentTooLong => "a segment of a pattern has at most 100 bytes",
            PatternProblem::BlankOrControl => "a pattern has no white space or control character",
            PatternProblem::TooManySegments => "a pattern has at most 32 segments",
        }
    }
}

impl fmt::Display for PatternProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for PatternProblem {}

#[cfg(test)]
mod tests;
