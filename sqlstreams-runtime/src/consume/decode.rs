//! From a row to a payload. What does not decode says where, and never shows a value.

use serde_json::Value;
use serde_path_to_error::{Path, Segment};

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
            let path = shown::<S>(err.path());
            let rule = without_values(err.inner());
            if path.is_empty() { format!("the payload does not decode: {rule}") } else { format!("`{path}`: {rule}") }
        }
    }
}

/// The path, with `*` for a map's key: only names that the type declares are ours to show. A path does not tell a field
/// from a key, so the type's schema is walked along with it.
fn shown<S: Stream>(path: &Path) -> String {
    let schema = schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<S>();
    let root = schema.to_value();
    let mut places = vec![&root];
    let mut text = String::new();
    for segment in path.iter() {
        places = alternatives(&root, places);
        let (name, next) = match segment {
            Segment::Seq { index } => {
                text.push_str(&format!("[{index}]"));
                places = places.iter().flat_map(|place| items(place, *index)).collect();
                continue;
            }
            Segment::Map { key } | Segment::Enum { variant: key } => step(&places, key),
            Segment::Unknown => ("*", Vec::new()),
        };
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(name);
        places = next;
    }
    text
}

/// The schemas that the value at these places may have: references are followed, and alternatives taken apart.
fn alternatives<'a>(root: &'a Value, mut open: Vec<&'a Value>) -> Vec<&'a Value> {
    let mut found: Vec<&Value> = Vec::new();
    while let Some(place) = open.pop() {
        if found.iter().any(|known| std::ptr::eq(*known, place)) {
            continue;
        }
        found.push(place);
        let reference = place.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        open.extend(reference.and_then(|pointer| root.pointer(pointer)));
        let lists = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|word| place.get(word)?.as_array());
        open.extend(lists.flatten());
    }
    found
}

/// The schemas of a list's element.
fn items(place: &Value, index: usize) -> impl Iterator<Item = &Value> {
    place.get("prefixItems").and_then(|items| items.get(index)).into_iter().chain(place.get("items"))
}

/// A declared name and the schemas of its value; a star and the schemas of a map's values for any other key.
fn step<'a, 'b>(places: &[&'a Value], key: &'b str) -> (&'b str, Vec<&'a Value>) {
    let declared: Vec<&Value> = places.iter().filter_map(|place| place.get("properties")?.get(key)).collect();
    if !declared.is_empty() {
        return (key, declared);
    }
    ("*", places.iter().filter_map(|place| place.get("additionalProperties")).collect())
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
