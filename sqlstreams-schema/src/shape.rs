use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::shape_difference;

/// What a payload looks like on the wire: its JSON Schema without titles, comments, type names and the order
/// of fields, so that two builds that read and write the same JSON have the same shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(Value);

impl Shape {
    /// Normalises a JSON Schema. References are resolved; one to an enclosing type becomes the number of
    /// levels to go up.
    ///
    /// Types that are nested deeper than 40 levels, or that spell out to more than 20,000 of them, keep
    /// their reference by name.
    pub fn from_json_schema(schema: &Value) -> Shape {
        let mut normaliser = Normaliser { root: schema, open: vec![("#".to_owned(), 0)], nodes: 0 };
        Shape(normaliser.schema(schema, 0))
    }

    /// Returns the canonical text: no blanks, keys in order.
    pub fn to_json(&self) -> String {
        canonical(&self.0)
    }

    /// Reads a text that [`to_json`](Shape::to_json) wrote.
    ///
    /// # Errors
    ///
    /// When the text is not JSON, or no schema.
    pub fn parse(text: &str) -> Result<Shape, ShapeProblem> {
        match serde_json::from_str(text) {
            Ok(value @ (Value::Object(_) | Value::Bool(_))) => Ok(Shape(value)),
            Ok(_) => Err(ShapeProblem(None)),
            Err(error) => Err(ShapeProblem(Some(error))),
        }
    }

    /// Returns the SHA-256 of the canonical text.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.to_json().as_bytes()).into()
    }

    /// Says the first difference from the stored shape in a user's words, or `None` when there is none.
    pub fn difference(&self, stored: &Shape) -> Option<String> {
        shape_difference::find(&self.0, &stored.0)
    }
}

/// A text that is no shape.
#[derive(Debug)]
pub struct ShapeProblem(Option<serde_json::Error>);

impl fmt::Display for ShapeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(error) => write!(f, "a shape is JSON - {error}"),
            None => f.write_str("a shape is a JSON object or a boolean"),
        }
    }
}

impl std::error::Error for ShapeProblem {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.as_ref().map(|error| error as _)
    }
}

const MAX_DEPTH: usize = 40;
const MAX_NODES: usize = 20_000;

/// Keywords without effect on the wire.
const SILENT: [&str; 14] = [
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "$vocabulary",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];

struct Normaliser<'a> {
    root: &'a Value,
    /// The references that are being resolved, each with the depth at which it stands.
    open: Vec<(String, usize)>,
    nodes: usize,
}

impl Normaliser<'_> {
    fn schema(&mut self, schema: &Value, depth: usize) -> Value {
        self.nodes += 1;
        match schema {
            Value::Object(keywords) => {
                let mut own = Map::new();
                for (keyword, value) in keywords {
                    self.keyword(&mut own, keyword, value, depth);
                }
                let own = simplify(own);
                match keywords.get("$ref").and_then(Value::as_str) {
                    Some(reference) => join(own, self.reference(reference, depth)),
                    None => own,
                }
            }
            Value::Bool(all) => Value::Bool(*all),
            _ => Value::Bool(true),
        }
    }

    fn keyword(&mut self, own: &mut Map<String, Value>, name: &str, value: &Value, depth: usize) {
        let (name, value) = match (name, value) {
            ("$ref", Value::String(_)) => return,
            (name, _) if SILENT.contains(&name) => return,
            ("required" | "enum", Value::Array(values)) => (name, sorted(values)),
            ("const", value) => ("enum", sorted(std::slice::from_ref(value))),
            ("type", value) => (name, type_names(value)),
            ("properties" | "patternProperties" | "dependentSchemas", Value::Object(schemas)) => {
                let schemas = schemas.iter().map(|(field, schema)| (field.clone(), self.schema(schema, depth + 1)));
                (name, Value::Object(schemas.collect()))
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(schemas)) => {
                let schemas = schemas.iter().map(|schema| self.schema(schema, depth + 1));
                (name, Value::Array(schemas.collect()))
            }
            (
                "items"
                | "additionalItems"
                | "additionalProperties"
                | "contains"
                | "contentSchema"
                | "else"
                | "if"
                | "not"
                | "propertyNames"
                | "then"
                | "unevaluatedItems"
                | "unevaluatedProperties",
                schema,
            ) => (name, self.schema(schema, depth + 1)),
            (name, value) => (name, plain(value)),
        };
        own.insert(name.to_owned(), value);
    }

    fn reference(&mut self, reference: &str, depth: usize) -> Value {
        if let Some((_, at)) = self.open.iter().rev().find(|(open, _)| open == reference) {
            return keyed("$ref", Value::from(depth - at));
        }
        let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        match target {
            Some(target) if depth <= MAX_DEPTH && self.nodes <= MAX_NODES => {
                self.open.push((reference.to_owned(), depth));
                let resolved = self.schema(target, depth);
                self.open.pop();
                resolved
            }
            _ => keyed("$ref", Value::from(reference)),
        }
    }
}

/// Both schemas at once, as one object where their keywords allow it.
fn join(left: Value, right: Value) -> Value {
    match (left, right) {
        (Value::Bool(true), other) | (other, Value::Bool(true)) => other,
        (Value::Object(left), Value::Object(mut right)) if left.keys().all(|keyword| !right.contains_key(keyword)) => {
            right.extend(left);
            Value::Object(right)
        }
        (left, right) => keyed("allOf", sorted(&[left, right])),
    }
}

/// Brings what can be written in several ways into one of them.
fn simplify(mut own: Map<String, Value>) -> Value {
    for keyword in ["required", "properties"] {
        if own.get(keyword).is_some_and(is_empty) {
            own.remove(keyword);
        }
    }
    if let Some(Value::Array(values)) = own.get("enum")
        && values.iter().all(Value::is_string)
        && !own.contains_key("type")
    {
        own.insert("type".to_owned(), Value::from("string"));
    }
    let mut joined = Value::Bool(true);
    if let Some(Value::Array(cases)) = own.remove("allOf") {
        for case in cases {
            joined = join(joined, case);
        }
    }
    if let Some(Value::Array(cases)) = own.remove("oneOf") {
        joined = join(joined, alternatives("oneOf", merge_values(cases)));
    }
    if let Some(Value::Array(cases)) = own.remove("anyOf") {
        joined = join(joined, merge_null(cases));
    }
    let own = if own.is_empty() { Value::Bool(true) } else { Value::Object(own) };
    join(own, joined)
}

fn alternatives(keyword: &str, mut cases: Vec<Value>) -> Value {
    match cases.len() {
        1 => cases.remove(0),
        _ => keyed(keyword, Value::Array(cases)),
    }
}

/// Joins the cases that are lists of values: a doc comment on a variant makes its value a case of its own.
fn merge_values(cases: Vec<Value>) -> Vec<Value> {
    let mut values = Vec::new();
    let mut others = Vec::new();
    for case in cases {
        match case.get("enum").and_then(Value::as_array) {
            Some(list) if is_string_enum(&case) => values.extend(list.iter().cloned()),
            _ => others.push(case),
        }
    }
    if !values.is_empty() {
        let mut merged = Map::new();
        merged.insert("enum".to_owned(), sorted(&values));
        merged.insert("type".to_owned(), Value::from("string"));
        others.push(Value::Object(merged));
    }
    others.sort_by_cached_key(canonical);
    others
}

fn is_string_enum(case: &Value) -> bool {
    case.as_object().is_some_and(|keywords| keywords.len() == 2)
        && case.get("type").and_then(Value::as_str) == Some("string")
}

/// Writes "this or null" as a second type name where the schema has one type.
fn merge_null(mut cases: Vec<Value>) -> Value {
    let null = keyed("type", Value::from("null"));
    if cases.len() == 2
        && let Some(at) = cases.iter().position(|case| *case == null)
        && let Value::Object(other) = &mut cases[1 - at]
        && let Some(name @ Value::String(_)) = other.get("type").cloned()
        && name != "null"
    {
        let names = type_names(&Value::Array(vec![name, Value::from("null")]));
        other.insert("type".to_owned(), names);
        if let Some(Value::Array(values)) = other.get_mut("enum") {
            values.push(Value::Null);
            values.sort_by_cached_key(canonical);
        }
        return cases.swap_remove(1 - at);
    }
    alternatives("anyOf", cases)
}

fn type_names(value: &Value) -> Value {
    match value {
        Value::Array(names) => match sorted(names) {
            Value::Array(mut names) if names.len() == 1 => names.remove(0),
            names => names,
        },
        name => name.clone(),
    }
}

fn sorted(values: &[Value]) -> Value {
    let mut values: Vec<Value> = values.iter().map(plain).collect();
    values.sort_by_cached_key(canonical);
    values.dedup();
    Value::Array(values)
}

/// Writes whole numbers as integers at any depth, so that `0` and `0.0` are one bound.
fn plain(value: &Value) -> Value {
    match value {
        Value::Array(values) => Value::Array(values.iter().map(plain).collect()),
        Value::Object(entries) => entries.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => Value::from(float as i64),
            _ => value.clone(),
        },
        _ => value.clone(),
    }
}

fn keyed(keyword: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(keyword.to_owned(), value)]))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

/// Writes JSON with sorted keys, whatever order the map of `serde_json` keeps.
pub(crate) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(&mut text, value);
    text
}

fn write_canonical(text: &mut String, value: &Value) {
    match value {
        Value::Array(values) => {
            text.push('[');
            for (i, value) in values.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write_canonical(text, value);
            }
            text.push(']');
        }
        Value::Object(entries) => {
            text.push('{');
            let keys: BTreeSet<&String> = entries.keys().collect();
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write_canonical(text, &Value::from(key.as_str()));
                text.push(':');
                write_canonical(text, &entries[key]);
            }
            text.push('}');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests;
