use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::shape::canonical;

/// Says the first difference between two normalised schemas, or `None` when they are equal.
pub(crate) fn find(here: &Value, stored: &Value) -> Option<String> {
    at(&Place(String::new()), here, stored)
}

/// Where in the payload the two schemas stand, such as `lines[].price`.
struct Place(String);

impl Place {
    fn field(&self, name: &str) -> Place {
        if self.0.is_empty() { Place(name.to_owned()) } else { Place(format!("{}.{name}", self.0)) }
    }

    fn inside(&self, mark: &str) -> Place {
        let joined = format!("{}{mark}", self.0);
        Place(joined.trim_start_matches('.').to_owned())
    }

    fn subject(&self) -> String {
        if self.0.is_empty() { "the payload".to_owned() } else { format!("field `{}`", self.0) }
    }
}

fn at(place: &Place, here: &Value, stored: &Value) -> Option<String> {
    if here == stored {
        return None;
    }
    kinds(place, here, stored)
        .or_else(|| values(place, here, stored))
        .or_else(|| fields(place, here, stored))
        .or_else(|| required(place, here, stored))
        .or_else(|| cases(place, here, stored))
        .or_else(|| elements(place, here, stored))
        .or_else(|| other_keywords(place, here, stored))
        .or_else(|| {
            let subject = place.subject();
            Some(format!("{subject} has another shape here than in the stored version"))
        })
}

fn kinds(place: &Place, here: &Value, stored: &Value) -> Option<String> {
    let (kind, stored_kind) = (kind(here), kind(stored));
    (kind != stored_kind).then(|| {
        let subject = place.subject();
        format!("{subject} is {kind} here, {stored_kind} in the stored version")
    })
}

fn kind(schema: &Value) -> String {
    let name = match (schema, schema.get("type")) {
        (Value::Bool(false), _) => return "no value".to_owned(),
        (_, Some(Value::String(name))) => name.clone(),
        (_, Some(Value::Array(names))) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
            let (nulls, others): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| *name == "null");
            [others, nulls].concat().join(" or ")
        }
        _ if schema.get("$ref").is_some() => "a value of an enclosing type".to_owned(),
        _ if CASES.iter().any(|keyword| schema.get(*keyword).is_some()) => "one of several types".to_owned(),
        _ => "any value".to_owned(),
    };
    match schema.get("format").and_then(Value::as_str) {
        Some(format) => format!("{name} ({format})"),
        None => name,
    }
}

fn values(place: &Place, here: &Value, stored: &Value) -> Option<String> {
    let subject = place.subject();
    match (value_set(here), value_set(stored)) {
        (Some(here), Some(stored)) => {
            if let Some(value) = here.difference(&stored).next() {
                return Some(format!("{subject} takes {value} here, and not in the stored version"));
            }
            let value = stored.difference(&here).next()?;
            Some(format!("{subject} takes {value} in the stored version, and not here"))
        }
        (Some(here), None) => Some(format!(
            "{subject} takes only {} here, any value in the stored version",
            Vec::from_iter(here).join(", ")
        )),
        (None, Some(stored)) => Some(format!(
            "{subject} takes any value here, only {} in the stored version",
            Vec::from_iter(stored).join(", ")
        )),
        (None, None) => None,
    }
}

fn value_set(schema: &Value) -> Option<BTreeSet<String>> {
    let values = schema.get("enum")?.as_array()?;
    Some(values.iter().map(canonical).collect())
}

fn fields(place: &Place, here: &Value, stored: &Value) -> Option<String> {
    let (here_fields, stored_fields) = (properties(here), properties(stored));
    let names: BTreeSet<&str> = here_fields.keys().chain(stored_fields.keys()).copied().collect();
    names.into_iter().find_map(|name| {
        let place = place.field(name);
        let subject = place.subject();
        match (here_fields.get(name), stored_fields.get(name)) {
            (Some(here), Some(stored)) => at(&place, here, stored),
            (Some(_), None) => Some(format!("{subject} is here, and not in the stored version")),
            _ => Some(format!("{subject} is in the stored version, and not here")),
        }
    })
}

fn properties(schema: &Value) -> BTreeMap<&str, &Value> {
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.into_iter().flatten();
    fields.map(|(name, field)| (name.as_str(), field)).collect()
}

fn required(place: &Place, here: &Value, stored: &Value) -> Option<String> {
    let (here, stored) = (required_set(here), required_set(stored));
    let name = here.symmetric_difference(&stored).next()?;
    let subject = place.field(name).subject();
    Some(if here.contains(name) {
        format!("{subject} is required here, optional in the stored version")
    } else {
        format!("{subject} is optional here, required in the stored version")
    })
}

fn required_set(schema: &Value) -> BTreeSet<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

const CASES: [&str; 3] = ["oneOf", "anyOf", "allOf"];

fn cases(place: &Place, here: &Value, stored: &Value) -> Option<String> {
    CASES.iter().find_map(|keyword| {
        let here = list(here, keyword);
        let stored = list(stored, keyword);
        match (labelled(&here), labelled(&stored)) {
            (Some(here), Some(stored)) => labelled_cases(place, &here, &stored),
            _ => numbered_cases(place, &here, &stored),
        }
    })
}

fn list<'a>(schema: &'a Value, keyword: &str) -> Vec<&'a Value> {
    let cases = schema.get(keyword).and_then(Value::as_array);
    cases.into_iter().flatten().collect()
}

type Labelled<'a> = BTreeMap<&'a str, &'a Value>;

/// The cases by the names of their variants, when each has its own.
fn labelled<'a>(cases: &[&'a Value]) -> Option<Labelled<'a>> {
    let named: Option<Labelled<'a>> = cases.iter().map(|case| Some((label(case)?, *case))).collect();
    named.filter(|named| named.len() == cases.len())
}

/// The variant's name: the only field of an object, or the only value of its tag. The values of an enum
/// without fields are one case.
fn label(case: &Value) -> Option<&str> {
    if case.get("enum").is_some() {
        return Some("");
    }
    let fields = properties(case);
    let tag = fields.values().find_map(|field| {
        let values = field.get("enum")?.as_array()?;
        (values.len() == 1).then(|| values[0].as_str())?
    });
    tag.or_else(|| {
        let only = (fields.len() == 1).then(|| fields.keys().next().copied());
        only.flatten()
    })
}

fn labelled_cases(place: &Place, here: &Labelled<'_>, stored: &Labelled<'_>) -> Option<String> {
    let labels: BTreeSet<&str> = here.keys().chain(stored.keys()).copied().collect();
    labels.into_iter().find_map(|label| {
        let subject = place.subject();
        match (here.get(label), stored.get(label)) {
            (Some(here), Some(stored)) => at(place, here, stored),
            (Some(case), None) => {
                Some(format!("{subject} has the variant {} here, and not in the stored version", variant(label, case)))
            }
            (_, case) => Some(format!(
                "{subject} has the variant {} in the stored version, and not here",
                case.map_or_else(String::new, |case| variant(label, case))
            )),
        }
    })
}

fn variant(label: &str, case: &Value) -> String {
    match value_set(case) {
        Some(values) => Vec::from_iter(values).join(", "),
        None => format!("`{label}`"),
    }
}

fn numbered_cases(place: &Place, here: &[&Value], stored: &[&Value]) -> Option<String> {
    if here.len() != stored.len() {
        let subject = place.subject();
        return Some(format!("{subject} has {} alternatives here, {} in the stored version", here.len(), stored.len()));
    }
    let mut pairs = here.iter().zip(stored);
    pairs.find_map(|(here, stored)| at(place, here, stored))
}

const ELEMENTS: [(&str, &str); 3] = [("items", "[]"), ("additionalProperties", ".*"), ("contains", "[]")];

fn elements(place: &Place, here: &Value, stored: &Value) -> Option<String> {
    let single = ELEMENTS.iter().find_map(|(keyword, mark)| match (here.get(*keyword), stored.get(*keyword)) {
        (Some(here @ Value::Object(_)), Some(stored @ Value::Object(_))) => at(&place.inside(mark), here, stored),
        _ => None,
    });
    single.or_else(|| {
        let (here, stored) = (list(here, "prefixItems"), list(stored, "prefixItems"));
        let mut pairs = here.iter().zip(&stored).enumerate();
        pairs.find_map(|(i, (here, stored))| at(&place.inside(&format!("[{i}]")), here, stored))
    })
}

fn other_keywords(place: &Place, here: &Value, stored: &Value) -> Option<String> {
    let (here, stored) = (here.as_object()?, stored.as_object()?);
    let keywords: BTreeSet<&String> = here.keys().chain(stored.keys()).collect();
    let keyword = keywords.into_iter().find(|keyword| here.get(*keyword) != stored.get(*keyword))?;
    let subject = place.subject();
    let value = |value: Option<&Value>| value.map_or_else(|| "none".to_owned(), canonical);
    Some(format!(
        "{subject} has `{keyword}` {} here, {} in the stored version",
        value(here.get(keyword)),
        value(stored.get(keyword))
    ))
}
