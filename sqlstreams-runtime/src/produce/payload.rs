//! Payloads that are compared: by a hash of what they say, whatever the order of a map's keys, and by the first place
//! where two differ.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::identity::Digest;
use crate::message::Stream;

/// The first sixteen bytes of the SHA-256 of `bytes`.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    cut(Sha256::digest(bytes).as_slice())
}

/// The hash of a payload. A serialized map has its keys in any order; the hash does not depend on it.
pub(crate) fn hash(json: &str) -> Digest {
    let mut hasher = Sha256::new();
    feed(&mut hasher, json);
    cut(hasher.finalize().as_slice())
}

fn cut(hash: &[u8]) -> Digest {
    let mut digest = [0; 16];
    for (to, from) in digest.iter_mut().zip(hash) {
        *to = *from;
    }
    Digest(digest)
}

/// Feeds the canonical form: numbers and texts stay as they were written, since no number type holds all of JSON's.
fn feed(hasher: &mut Sha256, json: &str) {
    match json.as_bytes().first() {
        Some(b'{') => {
            let Ok(fields) = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(json) else {
                return hasher.update(json.as_bytes());
            };
            hasher.update(b"{");
            for (name, field) in fields {
                hasher.update(name.len().to_le_bytes());
                hasher.update(name.as_bytes());
                feed(hasher, field.get());
            }
            hasher.update(b"}");
        }
        Some(b'[') => {
            let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(json) else {
                return hasher.update(json.as_bytes());
            };
            hasher.update(b"[");
            for item in items {
                feed(hasher, item.get());
                hasher.update(b",");
            }
            hasher.update(b"]");
        }
        _ => hasher.update(json.as_bytes()),
    }
}

/// Where two payloads of `S` differ first. Names of fields are declared; the keys of a map are payload like its
/// values, and are shown as `*`. `None` when one can't be read.
pub(crate) fn first_difference<S: Stream>(first: &[u8], second: &[u8]) -> Option<String> {
    let (first, second) = (serde_json::from_slice(first).ok()?, serde_json::from_slice(second).ok()?);
    let schema = schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<S>();
    let schema = schema.to_value();
    let names = Names { root: &schema, here: vec![&schema] };
    let path = names.difference(&first, &second)?;
    Some(if path.is_empty() { "the whole payload".to_owned() } else { path.trim_start_matches('.').to_owned() })
}

/// The schemas that may describe one place of a payload.
struct Names<'a> {
    root: &'a Value,
    here: Vec<&'a Value>,
}

/// Enough for alternatives of alternatives; a schema that refers to itself ends here.
const MOST_SCHEMAS: usize = 256;

impl<'a> Names<'a> {
    fn difference(&self, first: &Value, second: &Value) -> Option<String> {
        match (first, second) {
            (Value::Object(first), Value::Object(second)) => {
                let names = first.keys().chain(second.keys().filter(|name| !first.contains_key(*name)));
                let mut names: Vec<_> = names.collect();
                names.sort_unstable();
                names.into_iter().find_map(|name| {
                    let (shown, below) = self.field(name);
                    match (first.get(name), second.get(name)) {
                        (Some(first), Some(second)) => below.difference(first, second),
                        _ => Some(String::new()),
                    }
                    .map(|rest| format!(".{shown}{rest}"))
                })
            }
            (Value::Array(first), Value::Array(second)) => {
                let longest = first.len().max(second.len());
                (0..longest).find_map(|at| {
                    match (first.get(at), second.get(at)) {
                        (Some(first), Some(second)) => self.item(at).difference(first, second),
                        _ => Some(String::new()),
                    }
                    .map(|rest| format!("[{at}]{rest}"))
                })
            }
            (first, second) => (first != second).then(String::new),
        }
    }

    /// How a field's name is shown, and what describes its value.
    fn field<'n>(&self, name: &'n str) -> (&'n str, Self) {
        let all = self.flat();
        let declared: Vec<_> = all.iter().filter_map(|schema| schema.get("properties")?.get(name)).collect();
        if !declared.is_empty() {
            return (name, self.at(declared));
        }
        let patterns = all.iter().filter_map(|schema| schema.get("patternProperties")?.as_object());
        let patterns = patterns.flat_map(|patterns| patterns.values());
        let rest = all.iter().filter_map(|schema| schema.get("additionalProperties"));
        ("*", self.at(rest.chain(patterns).collect()))
    }

    fn item(&self, at: usize) -> Self {
        let all = self.flat();
        let placed = all.iter().filter_map(|schema| schema.get("prefixItems")?.get(at));
        let any = all.iter().filter_map(|schema| schema.get("items"));
        self.at(placed.chain(any).collect())
    }

    fn at(&self, here: Vec<&'a Value>) -> Self {
        Self { root: self.root, here }
    }

    /// These schemas with all that they refer to and all their alternatives.
    fn flat(&self) -> Vec<&'a Value> {
        let mut flat: Vec<&'a Value> = Vec::new();
        let mut open = self.here.clone();
        while let Some(schema) = open.pop() {
            if flat.len() >= MOST_SCHEMAS || flat.iter().any(|known| std::ptr::eq(*known, schema)) {
                continue;
            }
            flat.push(schema);
            let target = schema.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
            open.extend(target.and_then(|target| self.root.pointer(target)));
            for word in ["anyOf", "oneOf", "allOf"] {
                open.extend(schema.get(word).and_then(Value::as_array).into_iter().flatten());
            }
        }
        flat
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use sqlstreams_schema::Route;

    use super::*;
    use crate::message::SegmentError;

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Line {
        sku: String,
        counts: BTreeMap<String, u32>,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    enum Way {
        Post { street: String },
        Air(u8),
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Order {
        lines: Vec<Line>,
        by_customer: BTreeMap<String, Line>,
        way: Option<Way>,
        #[serde(flatten)]
        more: BTreeMap<String, String>,
    }

    impl Stream for Order {
        const NAME: &'static str = "orders";
        const VERSION: u32 = 1;
        const ROUTE: Route = Route::NONE;
        const KEY: Option<&'static str> = None;

        fn routing_key(&self) -> Result<Option<String>, SegmentError> {
            Ok(None)
        }

        fn message_key(&self) -> Option<String> {
            None
        }
    }

    fn difference(first: &str, second: &str) -> Option<String> {
        first_difference::<Order>(first.as_bytes(), second.as_bytes())
    }

    #[test]
    fn a_hash_sees_what_is_said_and_not_the_order_of_keys() {
        assert_eq!(hash(r#"{"a":1,"b":{"c":2,"d":[1,2]}}"#), hash(r#"{"b":{"d":[1,2],"c":2},"a":1}"#));
        let others = [r#"{"a":1}"#, r#"{"a":2}"#, r#"{"b":1}"#, r#"{"a":"1"}"#, r#"{"a":1.0}"#, r#"{"a":[1]}"#];
        let pairs = ["[[1],2]", "[[1,2]]", r#"{"ab":1}"#, "[12]", "[1,2]", "[2,1]", "[]", "{}", "[[]]", "null"];
        let all: Vec<_> = others.iter().chain(&pairs).map(|json| hash(json)).collect();
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "text {at} has the hash of another");
        }
        let large = "340282366920938463463374607431768211455";
        assert_ne!(hash(large), hash("340282366920938463463374607431768211454"));
        assert_eq!(digest(b"").0[..4], [0xe3, 0xb0, 0xc4, 0x42], "SHA-256 of nothing");
    }

    #[test]
    fn the_first_difference_is_named_by_declared_names_and_places() {
        let base = r#"{"lines":[{"sku":"a","counts":{"secret":1}}],"by_customer":{},"way":{"Air":1}}"#;
        assert_eq!(difference(base, base), None);
        let other = base.replace(r#""sku":"a""#, r#""sku":"b""#);
        assert_eq!(difference(base, &other).as_deref(), Some("lines[0].sku"));
        let other = base.replace(r#"{"Air":1}"#, r#"{"Post":{"street":"x"}}"#);
        assert_eq!(difference(base, &other).as_deref(), Some("way.Air"));
        let other = base.replace("}}],", "}},{}],");
        assert_eq!(difference(base, &other).as_deref(), Some("lines[1]"));
        assert_eq!(difference(base, "[]").as_deref(), Some("the whole payload"));
        assert_eq!(difference(base, "no JSON"), None);
    }

    #[test]
    fn the_keys_of_maps_are_not_shown() {
        let base = r#"{"lines":[{"sku":"a","counts":{"secret":1}}],"by_customer":{"secret":{"sku":"a"}},"secret":"x"}"#;
        let other = base.replace(r#""counts":{"secret":1}"#, r#""counts":{"secret":2}"#);
        assert_eq!(difference(base, &other).as_deref(), Some("lines[0].counts.*"));
        let other = base.replace(r#"{"secret":{"sku":"a"}}"#, r#"{"secret":{"sku":"b"}}"#);
        assert_eq!(difference(base, &other).as_deref(), Some("by_customer.*.sku"));
        let other = base.replace(r#""secret":"x""#, r#""secret":"y""#);
        assert_eq!(difference(base, &other).as_deref(), Some("*"));
        let other = base.replace(r#"{"secret":1}"#, r#"{"other":1}"#);
        assert_eq!(difference(base, &other).as_deref(), Some("lines[0].counts.*"));
    }
}
