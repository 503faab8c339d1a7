use super::*;
use proptest::prelude::*;
use schemars::{JsonSchema, schema_for};
use serde_json::json;

fn shape(schema: Value) -> Shape {
    Shape::from_json_schema(&schema)
}

fn shape_of<T: JsonSchema>() -> Shape {
    shape(schema_for!(T).to_value())
}

fn difference(here: Value, stored: Value) -> String {
    shape(here).difference(&shape(stored)).expect("a difference")
}

mod plain {
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    pub struct Order {
        pub id: u64,
        pub lines: Vec<Line>,
        pub paid: Option<Payment>,
        pub region: Region,
        pub parent: Option<Box<Order>>,
        pub extra: serde_json::Value,
    }
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    pub struct Line {
        pub sku: String,
        pub count: u32,
    }
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    pub enum Payment {
        Cash,
        Later,
        Card { number: String },
    }
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    pub enum Region {
        Eu,
        Us,
    }
}

mod documented {
    /// An order.
    #[derive(schemars::JsonSchema)]
    #[schemars(title = "An order", rename = "PurchaseOrder")]
    #[expect(dead_code, reason = "only its schema is used")]
    pub struct Order2 {
        /// Anything else.
        pub extra: serde_json::Value,
        /// The order that this one continues.
        pub parent: Option<Box<Order2>>,
        /// Where it was placed.
        pub region: Place,
        /// How it was paid.
        pub paid: Option<PaidWith>,
        /// What was ordered.
        pub lines: Vec<Item>,
        /// The number.
        pub id: u64,
    }
    /// A line.
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    pub struct Item {
        /// How many.
        pub count: u32,
        /// Which.
        pub sku: String,
    }
    /// How.
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    pub enum PaidWith {
        /// With a card.
        Card {
            /// Its number.
            number: String,
        },
        /// At the door.
        Cash,
        Later,
    }
    /// Where.
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    pub enum Place {
        Us,
        /// Europe.
        Eu,
    }
}

#[test]
fn comments_order_and_type_names_do_not_matter() {
    let (one, other) = (shape_of::<plain::Order>(), shape_of::<documented::Order2>());
    assert_eq!(one.difference(&other), None);
    assert_eq!(one.to_json(), other.to_json());
    assert_eq!(one.hash(), other.hash());
    assert!(!one.to_json().contains("Order"), "{}", one.to_json());
}

#[test]
fn a_field_may_be_called_like_a_keyword() {
    let with_title = json!({"type": "object", "properties": {"title": {"type": "string"}}});
    let text = shape(with_title).to_json();
    assert_eq!(text, r#"{"properties":{"title":{"type":"string"}},"type":"object"}"#);
}

#[test]
fn a_recursive_type_ends_in_the_number_of_levels() {
    let inline = json!({
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    });
    let by_name = json!({
        "$ref": "#/$defs/Node",
        "$defs": {"Node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
        }},
    });
    assert_eq!(shape(inline.clone()), shape(by_name));
    assert!(shape(inline).to_json().contains(r#"{"$ref":2}"#));
}

#[test]
fn references_that_lead_nowhere_end() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}),
        json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}),
        json!({"$ref": "https://example.com/schema"}),
        json!({"$ref": 5, "type": 7, "enum": {}, "properties": [], "oneOf": {}}),
        json!(null),
    ] {
        let text = shape(schema).to_json();
        assert!(Shape::parse(&text).is_ok(), "{text}");
    }
}

#[test]
fn deep_and_wide_types_keep_a_bounded_shape() {
    let mut defs = Map::new();
    for level in 0..200 {
        let next = json!({"$ref": format!("#/$defs/T{}", level + 1)});
        let fields = json!({"left": next, "right": next});
        let schema = json!({"type": "object", "properties": fields});
        defs.insert(format!("T{level}"), schema);
    }
    defs.insert("T200".to_owned(), json!({"type": "string"}));
    let wide = shape(json!({"$ref": "#/$defs/T0", "$defs": defs}));
    assert!(wide.to_json().len() < 5_000_000);
    assert_eq!(Shape::parse(&wide.to_json()).expect("a shape"), wide);
}

#[test]
fn one_meaning_has_one_shape() {
    for (left, right) in [
        (json!({}), json!(true)),
        (json!({"description": "x"}), json!(true)),
        (json!({"type": ["string"]}), json!({"type": "string"})),
        (json!({"minimum": 0.0}), json!({"minimum": 0})),
        (json!({"const": "a"}), json!({"enum": ["a"], "type": "string"})),
        (json!({"enum": ["b", "a"]}), json!({"enum": ["a", "b"]})),
        (json!({"allOf": [{"type": "string"}], "format": "uuid"}), json!({"type": "string", "format": "uuid"})),
        (
            json!({"anyOf": [{"type": "null"}, {"enum": ["a"], "type": "string"}]}),
            json!({"type": ["null", "string"], "enum": [null, "a"]}),
        ),
        (
            json!({"oneOf": [{"const": "a"}, {"const": "b", "description": "x"}]}),
            json!({"enum": ["a", "b"], "type": "string"}),
        ),
        (json!({"type": "object", "required": []}), json!({"type": "object"})),
    ] {
        assert_eq!(shape(left.clone()), shape(right.clone()), "{left} {right}");
    }
    for (left, right) in [
        (json!({"format": "int32"}), json!({"format": "int64"})),
        (json!({"additionalProperties": false}), json!({})),
        (json!({"minimum": 0}), json!({})),
    ] {
        assert_ne!(shape(left.clone()), shape(right.clone()), "{left} {right}");
    }
}

#[test]
fn the_first_difference_names_its_field() {
    let total = |kind: &str| {
        let total = json!({"type": "object", "properties": {"currency": {"type": kind}}});
        json!({"type": "object", "properties": {"total": total}})
    };
    assert_eq!(
        difference(total("string"), total("integer")),
        "field `total.currency` is string here, integer in the stored version"
    );
    let lines = |item: Value| json!({"type": "object", "properties": {"lines": {"type": "array", "items": item}}});
    assert_eq!(
        difference(
            lines(json!({"type": "integer", "format": "int64"})),
            lines(json!({"type": ["integer", "null"], "format": "int32"})),
        ),
        "field `lines[]` is integer (int64) here, integer or null (int32) in the stored version"
    );
    let tags = |bound: u8| json!({"additionalProperties": {"type": "integer", "minimum": bound}});
    assert_eq!(difference(tags(0), tags(1)), "field `*` has `minimum` 0 here, 1 in the stored version");
}

#[test]
fn fields_and_values_that_only_one_side_has_are_named() {
    let object = |fields: Value, required: Value| json!({"type": "object", "properties": fields, "required": required});
    let (a, b) = (json!({"type": "string"}), json!({"type": "string"}));
    let both = json!({"a": a, "b": b});
    assert_eq!(
        difference(object(both.clone(), json!([])), object(json!({"a": a}), json!([]))),
        "field `b` is here, and not in the stored version"
    );
    assert_eq!(
        difference(object(json!({"a": a}), json!([])), object(both.clone(), json!([]))),
        "field `b` is in the stored version, and not here"
    );
    assert_eq!(
        difference(object(both.clone(), json!(["a"])), object(both, json!([]))),
        "field `a` is required here, optional in the stored version"
    );
    let region = |values: Value| object(json!({"region": {"enum": values}}), json!([]));
    assert_eq!(
        difference(region(json!(["eu", "uk"])), region(json!(["eu"]))),
        "field `region` takes \"uk\" here, and not in the stored version"
    );
    assert_eq!(
        difference(region(json!(["eu"])), object(json!({"region": {"type": "string"}}), json!([]))),
        "field `region` takes only \"eu\" here, any value in the stored version"
    );
    assert_eq!(
        difference(json!({"type": "object"}), json!({"type": "array"})),
        "the payload is object here, array in the stored version"
    );
}

#[test]
fn variants_are_compared_by_name() {
    let variant =
        |name: &str, kind: &str| json!({"type": "object", "properties": {name: {"type": kind}}, "required": [name]});
    let payment = |variants: Value| json!({"type": "object", "properties": {"paid": {"oneOf": variants}}});
    assert_eq!(
        difference(
            payment(json!([variant("Card", "string"), variant("Wire", "string")])),
            payment(json!([variant("Wire", "string")])),
        ),
        "field `paid` is one of several types here, object in the stored version"
    );
    assert_eq!(
        difference(
            payment(json!([variant("Card", "string"), variant("Wire", "string"), {"const": "Cash"}])),
            payment(json!([variant("Wire", "string"), {"const": "Cash"}])),
        ),
        "field `paid` has the variant `Card` here, and not in the stored version"
    );
    assert_eq!(
        difference(
            payment(json!([variant("Card", "string"), variant("Wire", "string")])),
            payment(json!([variant("Card", "string"), variant("Wire", "integer")])),
        ),
        "field `paid.Wire` is string here, integer in the stored version"
    );
}

#[test]
fn a_text_that_is_no_shape_is_refused() {
    assert!(Shape::parse("{").expect_err("a problem").to_string().starts_with("a shape is JSON - "));
    let number = Shape::parse("7").expect_err("a problem");
    assert_eq!(number.to_string(), "a shape is a JSON object or a boolean");
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop_oneof![Just("string"), Just("integer"), Just("null")].prop_map(|t| json!({"type": t})),
        prop::collection::vec("[ab]", 1..3).prop_map(|values| json!({"enum": values})),
        prop_oneof![Just("#"), Just("#/$defs/A"), Just("#/properties/a")].prop_map(|r| json!({"$ref": r})),
        Just(json!(true)),
        Just(json!({"const": "a", "description": "x"})),
    ];
    leaf.prop_recursive(4, 20, 3, |inner| {
        let fields = prop::collection::btree_map("[abc]", inner.clone(), 0..3);
        let cases = prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            (fields.clone(), prop::collection::vec("[abc]", 0..2))
                .prop_map(|(fields, required)| json!({"type": "object", "properties": fields, "required": required}),),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            (prop_oneof![Just("oneOf"), Just("anyOf"), Just("allOf")], cases)
                .prop_map(|(keyword, cases)| json!({keyword: cases})),
            (inner, fields).prop_map(|(root, defs)| json!({"allOf": [root], "$defs": defs})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_shape_survives_its_text(schema in schema()) {
        let shape = shape(schema);
        let read = Shape::parse(&shape.to_json()).expect("a shape");
        prop_assert_eq!(&read, &shape);
        prop_assert_eq!(read.hash(), shape.hash());
    }

    #[test]
    fn two_shapes_differ_in_words_exactly_when_they_differ(left in schema(), right in schema()) {
        let (left, right) = (shape(left), shape(right));
        prop_assert_eq!(left.difference(&right).is_none(), left == right);
        prop_assert_eq!(left.hash() == right.hash(), left == right);
        prop_assert_eq!(left.difference(&left), None);
    }
}
