//! The checks that only the user's crate can make, since they join what two macros declared.
//!
//! Each ends the evaluation with a finished sentence, which the compiler prints as its error. An empty
//! stream name marks a declaration whose own mistakes are reported already, so it fails no further check.

use crate::pattern::check_pattern;
use crate::policy::KeyPolicy;
use crate::route::{Route, RoutePart};
use crate::sentence::Sentence;
use crate::text::{Segments, bytes_eq, count_segments};

/// Checks one binding of a group: some routing key of the stream matches it, and no other binding matches
/// all that it does.
///
/// # Panics
///
/// With the reason, when it is not so.
#[track_caller]
pub const fn assert_binding(stream: &str, route: &Route, bindings: &[&str], index: usize) {
    if stream.is_empty() || check_pattern(bindings[index]).is_err() {
        return;
    }
    if !route.can_match(bindings[index]) {
        let sentence = unmatched("binding", bindings[index], stream, route);
        panic!("{}", sentence.as_str());
    }
    if let Some(wider) = covering(route, bindings, index) {
        let sentence = covered(bindings[index], wider);
        panic!("{}", sentence.as_str());
    }
}

/// Checks a pattern that the application wrote by hand.
///
/// # Panics
///
/// With the reason, when no routing key of the stream matches it.
#[track_caller]
pub const fn assert_pattern(stream: &str, route: &Route, pattern: &str) {
    if !stream.is_empty() && !route.can_match(pattern) {
        let sentence = unmatched("pattern", pattern, stream, route);
        panic!("{}", sentence.as_str());
    }
}

/// Checks a routing key that the application wrote by hand.
///
/// # Panics
///
/// With the reason, when the stream has no such routing key.
#[track_caller]
pub const fn assert_routing_key(stream: &str, route: &Route, key: &str) {
    if !stream.is_empty() && !route.accepts(key) {
        let mut sentence = Sentence::new();
        sentence.push_quoted(key);
        sentence.push(" is not a routing key of stream ");
        sentence.push_quoted(stream);
        explain(&mut sentence, key, route);
        panic!("{}", sentence.as_str());
    }
}

/// Checks that a group's key policy has a key to work on.
///
/// # Panics
///
/// When the policy needs a key and the stream declares none.
#[track_caller]
pub const fn assert_key_policy(stream: &str, key: Option<&str>, policy: KeyPolicy) {
    if stream.is_empty() || key.is_some() || !policy.needs_key() {
        return;
    }
    let mut sentence = Sentence::new();
    sentence.push("keys = ");
    sentence.push_quoted(policy.as_str());
    sentence.push(" needs a key, and stream ");
    sentence.push_quoted(stream);
    sentence.push(" declares none - add `key = \"...\"` to its `#[stream(..)]`, or take \"parallel\" here");
    panic!("{}", sentence.as_str());
}

/// Checks that `from` names an earlier version of the same stream.
///
/// # Panics
///
/// With the reason, when it does not.
#[track_caller]
pub const fn assert_earlier_version(stream: &str, version: u32, earlier_stream: &str, earlier_version: u32) {
    if stream.is_empty() || earlier_stream.is_empty() {
        return;
    }
    let mut sentence = Sentence::new();
    if !bytes_eq(stream.as_bytes(), earlier_stream.as_bytes()) {
        sentence.push("`from` names a payload of stream ");
        sentence.push_quoted(earlier_stream);
        sentence.push(", and this is one of stream ");
        sentence.push_quoted(stream);
        sentence.push(" - name the earlier version of the same stream");
        panic!("{}", sentence.as_str());
    }
    if earlier_version >= version {
        sentence.push("`from` names version ");
        sentence.push_number(earlier_version as u64);
        sentence.push(", and this is version ");
        sentence.push_number(version as u64);
        sentence.push(" - `from` takes a lower version");
        panic!("{}", sentence.as_str());
    }
}

/// Returns another binding that matches all that this one does. Of two that match the same keys, the earlier
/// covers the later.
const fn covering<'a>(route: &Route, bindings: &[&'a str], index: usize) -> Option<&'a str> {
    let mut other = 0;
    while other < bindings.len() {
        if other != index
            && !part_early(bindings[other], bindings[index])
            && route.covers(bindings[other], bindings[index])
            && (other < index || !route.covers(bindings[index], bindings[other]))
        {
            return Some(bindings[other]);
        }
        other += 1;
    }
    None
}

/// Whether two patterns are the same up to two different literals at one place, so that no key matches both.
/// Saves the compiler most of the proofs.
const fn part_early(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let len = if one.len() < other.len() { one.len() } else { other.len() };
    let mut i = 0;
    while i < len && one[i] == other[i] {
        if one[i] == b'*' && i > 0 && one[i - 1] == b'*' {
            return false;
        }
        i += 1;
    }
    i < len && one[i] != b'*' && other[i] != b'*'
}

const fn covered(binding: &str, wider: &str) -> Sentence {
    let mut sentence = Sentence::new();
    sentence.push("binding ");
    sentence.push_quoted(binding);
    sentence.push(" adds nothing - every routing key that it matches is matched by ");
    sentence.push_quoted(wider);
    sentence.push(" too, so remove one of them");
    sentence
}

const fn unmatched(what: &str, pattern: &str, stream: &str, route: &Route) -> Sentence {
    let mut sentence = Sentence::new();
    sentence.push(what);
    sentence.push(" ");
    sentence.push_quoted(pattern);
    sentence.push(" matches no routing key of stream ");
    sentence.push_quoted(stream);
    explain(&mut sentence, pattern, route);
    sentence
}

const fn explain(sentence: &mut Sentence, text: &str, route: &Route) {
    sentence.push(" - ");
    if route.is_none() {
        sentence.push("it declares no route; add `route = \"...\"` to its `#[stream(..)]`");
        return;
    }
    explain_segment(sentence, text, route);
    sentence.push("its route is ");
    sentence.push_quoted(route.template);
    push_values(sentence, route);
}

/// Names the first segment that does not fit, or the count of segments, where the text has no `**`.
const fn explain_segment(sentence: &mut Sentence, text: &str, route: &Route) {
    let mut segments = Segments::new(text);
    let mut misfit = None;
    let mut i = 0;
    while let Some(segment) = segments.next() {
        if bytes_eq(segment, b"**") {
            return;
        }
        let fits = i >= route.segments.len() || bytes_eq(segment, b"*") || route.segments[i].accepts(segment);
        if !fits && misfit.is_none() {
            misfit = Some((segment, route.segments[i]));
        }
        i += 1;
    }
    if count_segments(text) != route.segments.len() {
        push_count(sentence, count_segments(text));
        sentence.push(", and ");
    } else if let Some((segment, part)) = misfit
        && let Ok(segment) = core::str::from_utf8(segment)
    {
        sentence.push_quoted(segment);
        push_expected(sentence, part);
        sentence.push("; ");
    }
}

const fn push_count(sentence: &mut Sentence, count: usize) {
    sentence.push("it has ");
    sentence.push_number(count as u64);
    sentence.push(if count == 1 { " segment" } else { " segments" });
}

const fn push_expected(sentence: &mut Sentence, part: RoutePart) {
    match part {
        RoutePart::Literal(text) => {
            sentence.push(" stands where every key has ");
            sentence.push_quoted(text);
        }
        RoutePart::Field { name, values } => {
            sentence.push(match values {
                Some(_) => " is not a value of {",
                None => " can't be a value of {",
            });
            sentence.push(name);
            sentence.push("}");
        }
    }
}

const fn push_values(sentence: &mut Sentence, route: &Route) {
    let mut joint = ", where {";
    let mut i = 0;
    while i < route.segments.len() {
        if let RoutePart::Field { name, values: Some(values) } = route.segments[i] {
            sentence.push(joint);
            sentence.push(name);
            sentence.push("} is ");
            push_alternatives(sentence, values);
            joint = " and {";
        }
        i += 1;
    }
}

const fn push_alternatives(sentence: &mut Sentence, values: &[&str]) {
    let mut i = 0;
    while i < values.len() {
        if i > 0 {
            sentence.push(if i + 1 == values.len() { " or " } else { ", " });
        }
        sentence.push_quoted(values[i]);
        i += 1;
    }
}

#[cfg(test)]
mod tests;
