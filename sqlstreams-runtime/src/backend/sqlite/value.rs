//! How values travel to and from SQLite: lists as JSON text, times as integers, texts as bytes.

use std::time::{Duration, SystemTime};

use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row, Sqlite, ValueRef};
use uuid::Uuid;

use crate::backend::ExceptionNext;
use crate::identity::{Digest, LeaseToken};
use crate::time::{Timestamp, micros};

pub(crate) fn now(now: Option<Timestamp>) -> Option<i64> {
    now.map(|now| now.0)
}

/// The time: the database's clock is this machine's, to the millisecond.
pub(crate) fn clock(now: Option<Timestamp>) -> Timestamp {
    now.unwrap_or_else(|| Timestamp(Timestamp::from(SystemTime::now()).0 / 1000 * 1000))
}

pub(crate) fn wait(wait: Duration) -> i64 {
    micros(wait)
}

/// A list as JSON text. What is passed has string keys, so that nothing can fail.
pub(crate) fn json(list: &impl serde::Serialize) -> String {
    serde_json::to_string(list).unwrap_or_default()
}

/// Tokens as a JSON array of hexadecimal texts, for `unhex`.
pub(crate) fn tokens(tokens: &[LeaseToken]) -> String {
    ids(tokens.iter().map(|token| token.0))
}

/// Ids as a JSON array of hexadecimal texts.
pub(crate) fn ids(ids: impl Iterator<Item = Uuid>) -> String {
    json(&ids.map(hex).collect::<Vec<_>>())
}

/// A hash as hexadecimal text.
pub(crate) fn digest(digest: Digest) -> String {
    hex(Uuid::from_bytes(digest.0))
}

pub(crate) fn hex(id: Uuid) -> String {
    id.simple().to_string()
}

/// (token, handled intervals) of each lease, JSON.
pub(crate) fn progress<'a>(leases: impl Iterator<Item = (LeaseToken, &'a [(i64, i64)])>) -> String {
    json(&leases.map(|(token, done)| (hex(token.0), merged(done))).collect::<Vec<_>>())
}

/// Intervals (low, high] in order, none empty, none touching another: what Postgres makes of a multirange.
fn merged(intervals: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut sorted: Vec<_> = intervals.iter().copied().filter(|(low, high)| low < high).collect();
    sorted.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::with_capacity(sorted.len());
    for (low, high) in sorted {
        match merged.last_mut() {
            Some(last) if low <= last.1 => last.1 = last.1.max(high),
            _ => merged.push((low, high)),
        }
    }
    merged
}

/// (next, wait in microseconds, error) as the statements take them.
pub(crate) fn next(next: &ExceptionNext) -> (&'static str, i64, Option<&str>) {
    match next {
        ExceptionNext::Retry { after, error } => ("retry", wait(*after), Some(error)),
        ExceptionNext::Later { after } => ("later", wait(*after), None),
        ExceptionNext::Dead { error } => ("dead", 0, Some(error)),
        ExceptionNext::Done => ("done", 0, None),
        ExceptionNext::Return => ("return", 0, None),
        ExceptionNext::Wait { after } => ("return", wait(*after), None),
    }
}

/// Globs of which at least one matches every routing key that one of `patterns` matches: `*` of a glob
/// crosses dots. No patterns mean all keys.
pub(crate) fn globs(patterns: &[String]) -> Option<String> {
    if patterns.is_empty() {
        return None;
    }
    Some(json(&patterns.iter().map(|pattern| glob(pattern)).collect::<Vec<_>>()))
}

fn glob(pattern: &str) -> String {
    let mut glob = String::with_capacity(pattern.len() + 8);
    let mut dot = false;
    for segment in pattern.split('.') {
        // `**` may be no segment at all, and then its dots are not there either.
        if dot && segment != "**" {
            glob.push('.');
        }
        dot = segment != "**";
        match segment {
            "*" | "**" => glob.push('*'),
            _ => segment.chars().for_each(|c| match c {
                '[' | '?' => glob.extend(['[', c, ']']),
                _ => glob.push(c),
            }),
        }
    }
    glob
}

/// A column's bytes: the text of a text, the value of a blob.
pub(crate) fn bytes(row: &SqliteRow, column: usize) -> Result<Option<&[u8]>, sqlx::Error> {
    let value = row.try_get_raw(column)?;
    if value.is_null() {
        return Ok(None);
    }
    <&[u8] as Decode<'_, Sqlite>>::decode(value).map(Some).map_err(sqlx::Error::Decode)
}

/// A JSON array of intervals (low, high].
pub(crate) fn intervals(row: &SqliteRow, column: usize) -> Result<Vec<(i64, i64)>, sqlx::Error> {
    let text = bytes(row, column)?.unwrap_or(b"[]");
    serde_json::from_slice(text).map_err(|err| sqlx::Error::Decode(Box::new(err)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_merged_as_a_multirange_merges_them() {
        assert_eq!(merged(&[(7, 9), (0, 3), (3, 5), (2, 4), (6, 6)]), [(0, 5), (7, 9)]);
        assert_eq!(merged(&[]), []);
    }

    #[test]
    fn a_glob_says_what_its_pattern_says_or_more() {
        assert_eq!(glob("orders.eu.*"), "orders.eu.*");
        assert_eq!(glob("orders.*.created"), "orders.*.created");
        assert_eq!(glob("orders.**"), "orders*");
        assert_eq!(glob("**.created"), "*created");
        assert_eq!(glob("a.**.b"), "a*b");
        assert_eq!(glob("**"), "*");
        assert_eq!(glob("a[b?.c"), "a[[]b[?].c");
    }

    #[test]
    fn no_pattern_is_no_glob() {
        assert_eq!(globs(&[]), None);
        assert_eq!(globs(&["a.*".to_owned(), "b".to_owned()]).as_deref(), Some(r#"["a.*","b"]"#));
    }
}
