//! How values travel to and from Postgres without a date or JSON type in between.

use std::time::Duration;

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgRow, PgTypeInfo, PgValueFormat};
use sqlx::{Encode, Postgres, Row, Type, ValueRef};

use crate::time::{Timestamp, micros};

/// 2000-01-01 00:00 UTC, Postgres' epoch, in microseconds.
const EPOCH: i64 = 946_684_800_000_000;
const JSON: Oid = Oid(114);
const JSON_ARRAY: Oid = Oid(199);

/// JSON text that is sent as it is: a `json` value's wire form is its text.
pub(crate) struct JsonText<'a>(pub(crate) &'a str);

impl Type<Postgres> for JsonText<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(JSON)
    }
}

impl PgHasArrayType for JsonText<'_> {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(JSON_ARRAY)
    }
}

impl Encode<'_, Postgres> for JsonText<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn size_hint(&self) -> usize {
        self.0.len()
    }
}

/// A column's bytes as they came: the text of `text` and `json`, the value of `bytea`.
pub(crate) fn bytes(row: &PgRow, column: usize) -> Result<Option<&[u8]>, sqlx::Error> {
    let value = row.try_get_raw(column)?;
    if value.is_null() {
        return Ok(None);
    }
    value.as_bytes().map(Some).map_err(sqlx::Error::Decode)
}

/// A `timestamptz` column.
pub(crate) fn timestamp(row: &PgRow, column: usize) -> Result<Timestamp, sqlx::Error> {
    let value = row.try_get_raw(column)?;
    let eight = match value.format() {
        PgValueFormat::Binary => value.as_bytes().ok().and_then(|bytes| <[u8; 8]>::try_from(bytes).ok()),
        PgValueFormat::Text => None,
    };
    let eight = eight.ok_or_else(|| sqlx::Error::Decode("a timestamptz is not eight bytes".into()))?;
    Ok(Timestamp(i64::from_be_bytes(eight).saturating_add(EPOCH)))
}

/// A `timestamptz` column that may be null.
pub(crate) fn optional_timestamp(row: &PgRow, column: usize) -> Result<Option<Timestamp>, sqlx::Error> {
    if row.try_get_raw(column)?.is_null() { Ok(None) } else { timestamp(row, column).map(Some) }
}

pub(crate) fn now(now: Option<Timestamp>) -> Option<i64> {
    now.map(|now| now.0)
}

pub(crate) fn wait(wait: Duration) -> i64 {
    micros(wait)
}

/// Intervals (low, high] as the text of an `int8multirange`.
pub(crate) fn multirange(intervals: &[(i64, i64)]) -> String {
    let parts: Vec<String> = intervals.iter().map(|(low, high)| format!("({low},{high}]")).collect();
    format!("{{{}}}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_exclude_their_low_end() {
        assert_eq!(multirange(&[(0, 5), (7, 9)]), "{(0,5],(7,9]}");
        assert_eq!(multirange(&[]), "{}");
    }
}
