//! From a payload to a row. Everything that the database would refuse is refused here, with the path.

use serde_json::Value;

use crate::error::{Error, Kind};
use crate::message::{Headers, NewMessage, Stream};

/// Larger messages belong in an object store, with their address in the stream.
pub(crate) const LARGEST_MESSAGE: usize = 16 * 1024 * 1024;
/// What fits an index.
const LONGEST_KEY: usize = 1000;
/// What one insert may carry.
pub(crate) const LARGEST_BATCH: usize = 256 * 1024 * 1024;

const PAYLOAD: &str = "payload";
const HEADERS: &str = "headers";

/// Encodes `payload` with its routing key, message key and headers.
pub(crate) fn encode<S: Stream>(payload: &S, headers: Option<&Headers>) -> Result<NewMessage, Error> {
    let text = serde_json::to_string(payload).map_err(|err| {
        let why = if err.is_io() { "its serializer stopped" } else { "it holds something that JSON can't express" };
        refuse(PAYLOAD, S::NAME, "SQLS-0201", format!("{why} - a map needs text keys"))
    })?;
    if text == "null" {
        return Err(refuse(PAYLOAD, S::NAME, "SQLS-0202", "it is JSON null - a message needs a payload".to_owned()));
    }
    check_text(PAYLOAD, S::NAME, &text)?;
    let routing_key = payload.routing_key().map_err(|err| Error::new(Kind::Message, "SQLS-0203", err.to_string()))?;
    let message_key = payload.message_key();
    check_key(S::NAME, "routing key", routing_key.as_deref(), LONGEST_KEY)?;
    check_key(S::NAME, "message key", message_key.as_deref(), LONGEST_KEY)?;
    let headers = headers.filter(|headers| !headers.is_empty()).map(|headers| encode_headers(S::NAME, headers));
    let message = NewMessage { payload: text, routing_key, message_key, headers: headers.transpose()? };
    if message.size() > LARGEST_MESSAGE {
        return Err(refuse(
            PAYLOAD,
            S::NAME,
            "SQLS-0204",
            format!("it has {} bytes; a message has at most {LARGEST_MESSAGE}", message.size()),
        ));
    }
    Ok(message)
}

fn encode_headers(stream: &str, headers: &Headers) -> Result<String, Error> {
    let text = serde_json::to_string(headers).map_err(|err| {
        Error::new(Kind::Message, "SQLS-0205", "the headers can't be written as JSON").with_source(err)
    })?;
    check_text(HEADERS, stream, &text)?;
    Ok(text)
}

fn refuse(what: &str, stream: &str, code: &'static str, why: String) -> Error {
    Error::new(Kind::Message, code, format!("the {what} for stream \"{stream}\" can't be produced: {why}"))
}

/// Refuses a key that a database can't store, or that is longer than `longest` bytes.
pub(crate) fn check_key(stream: &str, what: &str, key: Option<&str>, longest: usize) -> Result<(), Error> {
    match key {
        Some(key) if key.contains('\0') => Err(Error::new(
            Kind::Message,
            "SQLS-0206",
            format!("the {what} of a message for stream \"{stream}\" holds U+0000, which Postgres can't store"),
        )),
        Some(key) if key.len() > longest => Err(Error::new(
            Kind::Message,
            "SQLS-0207",
            format!(
                "the {what} of a message for stream \"{stream}\" has {} bytes; it may have {longest} at most",
                key.len()
            ),
        )),
        _ => Ok(()),
    }
}

/// One row with U+0000 or a lone surrogate would break `->>` over the whole table. serde_json writes U+0000
/// as an escape, and few payloads hold any `\u` at all.
fn check_text(what: &str, stream: &str, json: &str) -> Result<(), Error> {
    if !json.contains("\\u") {
        return Ok(());
    }
    match serde_json::from_str::<Value>(json) {
        Err(_) => Err(refuse(what, stream, "SQLS-0208", "it holds half of a surrogate pair".to_owned())),
        Ok(value) => match path_of_nul(&value) {
            None => Ok(()),
            Some(path) => {
                Err(refuse(what, stream, "SQLS-0209", format!("`{path}` holds U+0000, which Postgres can't query")))
            }
        },
    }
}

fn path_of_nul(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => text.contains('\0').then(String::new),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| path_of_nul(item).map(|rest| format!("[{at}]{}", dotted(&rest)))),
        Value::Object(fields) => fields.iter().find_map(|(name, field)| {
            if name.contains('\0') {
                return Some("a field's name".to_owned());
            }
            path_of_nul(field).map(|rest| format!("{name}{}", dotted(&rest)))
        }),
        _ => None,
    }
}

fn dotted(rest: &str) -> String {
    if rest.is_empty() || rest.starts_with('[') { rest.to_owned() } else { format!(".{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_is_refused_with_its_path_and_other_escapes_pass() {
        let refused = check_text(PAYLOAD, "s", r#"{"a":[1,{"b":"x\u0000y"}]}"#).map_err(|err| err.to_string());
        assert!(refused.is_err_and(|text| text.contains("`a[1].b`")));
        assert!(check_text(PAYLOAD, "s", r#"{"a":"\u0001 \\u0000"}"#).is_ok());
    }

    #[test]
    fn a_lone_surrogate_is_refused() {
        assert!(check_text(PAYLOAD, "s", r#"{"a":"\ud83d"}"#).is_err());
        assert!(check_text(PAYLOAD, "s", r#"{"a":"\ud83d\ude00"}"#).is_ok());
    }
}
