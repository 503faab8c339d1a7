//! From a row to a payload. What does not decode says where, and never shows a value.

use crate::message::{Codec, StoredMessage, Stream};

/// Decodes the payload of `message`.
///
/// The error is the failing path and the rule, without any value of the payload.
pub(crate) fn decode<S: Stream>(message: &StoredMessage) -> Result<S, String> {
    let payload = message.payload.as_deref().unwrap_or_default();
    match Codec::from_number(message.codec) {
        Some(Codec::Json) => serde_json::from_slice(payload).map_err(|_| explain::<S>(payload)),
        None => Err(format!("this build has no codec with the number {}", message.codec)),
    }
}

/// Decodes once more, with the path kept: only a payload that failed pays for it.
fn explain<S: Stream>(payload: &[u8]) -> String {
    let mut deserializer = serde_json::Deserializer::from_slice(payload);
    match serde_path_to_error::deserialize::<_, S>(&mut deserializer) {
        Ok(_) => match deserializer.end() {
            Ok(()) => "the payload does not decode".to_owned(),
            Err(err) => format!("the payload goes on after its end, at byte {}", err.column()),
        },
        Err(err) => {
            let path = err.path().to_string();
            let rule = without_values(err.inner());
            if path == "." { format!("the payload does not decode: {rule}") } else { format!("`{path}`: {rule}") }
        }
    }
}

/// serde's texts quote what they found; only what was expected is ours to show.
fn without_values(err: &serde_json::Error) -> String {
    if err.is_syntax() || err.is_eof() {
        return format!("not valid JSON, at line {} column {}", err.line(), err.column());
    }
    let text = err.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    if text.starts_with("missing field `") || text.starts_with("duplicate field `") {
        return text.to_owned();
    }
    let kinds = ["invalid type", "invalid value", "invalid length", "unknown variant", "unknown field"];
    let kind = kinds.into_iter().find(|kind| text.starts_with(kind)).unwrap_or("not accepted by its type");
    match text.rsplit_once(", expected ") {
        Some((_, expected)) if text.starts_with(kind) => format!("{kind}, expected {expected}"),
        _ => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> String {
        match serde_json::from_str::<(u32, bool)>(json) {
            Ok(_) => String::new(),
            Err(err) => without_values(&err),
        }
    }

    #[test]
    fn an_error_names_the_rule_and_not_the_value() {
        assert_eq!(rule(r#"["secret", true]"#), "invalid type, expected u32");
        assert_eq!(rule("[-7, true]"), "invalid value, expected u32");
        assert_eq!(rule("[1, tru"), "not valid JSON, at line 1 column 7");
    }
}
