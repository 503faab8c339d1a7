use super::*;
use crate::pattern::pattern_matches;
use proptest::prelude::*;

const REGION: RoutePart = RoutePart::Field { name: "region", values: Some(&["eu", "us", "ap"]) };
const KIND: RoutePart = RoutePart::Field { name: "kind", values: None };
const ORDERS: Route =
    Route { template: "orders.{region}.{kind}", segments: &[RoutePart::Literal("orders"), REGION, KIND] };

/// The message of the panic, or nothing.
fn caught(check: impl FnOnce() + std::panic::UnwindSafe) -> Option<String> {
    let panic = std::panic::catch_unwind(check).err()?;
    panic.downcast::<String>().ok().map(|text| *text)
}

fn binding(bindings: &[&str], index: usize) -> Option<String> {
    caught(|| assert_binding("orders.placed", &ORDERS, bindings, index))
}

#[test]
fn a_binding_that_matches_no_key_is_explained() {
    assert_eq!(
        binding(&["orders.xx.*"], 0).as_deref(),
        Some(
            "binding \"orders.xx.*\" matches no routing key of stream \"orders.placed\" - \"xx\" is not a \
             value of {region}; its route is \"orders.{region}.{kind}\", where {region} is \"eu\", \"us\" \
             or \"ap\""
        )
    );
    assert_eq!(
        binding(&["orders.eu"], 0).as_deref(),
        Some(
            "binding \"orders.eu\" matches no routing key of stream \"orders.placed\" - it has 2 segments, \
             and its route is \"orders.{region}.{kind}\", where {region} is \"eu\", \"us\" or \"ap\""
        )
    );
    assert_eq!(
        binding(&["order.**"], 0).as_deref(),
        Some(
            "binding \"order.**\" matches no routing key of stream \"orders.placed\" - its route is \
             \"orders.{region}.{kind}\", where {region} is \"eu\", \"us\" or \"ap\""
        )
    );
    let wrong_literal = binding(&["order.eu.*"], 0).expect("a message");
    assert!(wrong_literal.contains("\"order\" stands where every key has \"orders\"; its route"));
}

#[test]
fn a_binding_that_another_covers_is_explained_once() {
    let bindings = ["orders.eu.*", "orders.**", "**.created"];
    assert_eq!(
        binding(&bindings, 0).as_deref(),
        Some(
            "binding \"orders.eu.*\" adds nothing - every routing key that it matches is matched by \
             \"orders.**\" too, so remove one of them"
        )
    );
    assert_eq!(binding(&bindings, 1), None);
    assert!(binding(&bindings, 2).is_some());
    let same = ["orders.**", "*.*.*"];
    assert_eq!(binding(&same, 0), None);
    assert!(binding(&same, 1).is_some());
}

#[test]
fn bindings_side_by_side_pass() {
    for index in 0..2 {
        assert_eq!(binding(&["orders.eu.*", "orders.us.*"], index), None);
        assert_eq!(binding(&["orders.eu.*", "**.created"], index), None);
    }
}

#[test]
fn a_hand_written_key_must_be_one_of_the_route() {
    let check = |key: &'static str| caught(move || assert_routing_key("orders.placed", &ORDERS, key));
    assert_eq!(check("orders.eu.created"), None);
    assert_eq!(
        check("orders.eu.*").as_deref(),
        None.or(Some(
            "\"orders.eu.*\" is not a routing key of stream \"orders.placed\" - its route is \
             \"orders.{region}.{kind}\", where {region} is \"eu\", \"us\" or \"ap\""
        ))
    );
    assert!(check("orders.eu").expect("a message").contains("it has 2 segments, and"));
    let no_route = caught(|| assert_routing_key("plain", &Route::NONE, "a")).expect("a message");
    assert!(no_route.ends_with("it declares no route; add `route = \"...\"` to its `#[stream(..)]`"));
}

#[test]
fn a_hand_written_pattern_must_match_some_key() {
    assert_eq!(caught(|| assert_pattern("orders.placed", &ORDERS, "**.us.*")), None);
    let text = caught(|| assert_pattern("orders.placed", &ORDERS, "**.xx.*")).expect("a message");
    assert!(text.starts_with("pattern \"**.xx.*\" matches no routing key of stream"));
}

#[test]
fn a_key_policy_needs_a_key() {
    let check = |key, policy| caught(move || assert_key_policy("plain", key, policy));
    assert_eq!(check(Some("id"), KeyPolicy::Ordered), None);
    assert_eq!(check(None, KeyPolicy::Parallel), None);
    assert_eq!(
        check(None, KeyPolicy::Exclusive).as_deref(),
        Some(
            "keys = \"exclusive\" needs a key, and stream \"plain\" declares none - add `key = \"...\"` to \
             its `#[stream(..)]`, or take \"parallel\" here"
        )
    );
}

#[test]
fn from_names_an_earlier_version_of_the_stream() {
    let check = |earlier_stream, earlier_version| {
        caught(move || assert_earlier_version("orders", 2, earlier_stream, earlier_version))
    };
    assert_eq!(check("orders", 1), None);
    assert_eq!(
        check("orders", 2).as_deref(),
        Some("`from` names version 2, and this is version 2 - `from` takes a lower version")
    );
    let other = check("invoices", 1).expect("a message");
    assert!(other.starts_with("`from` names a payload of stream \"invoices\", and this is one of"));
}

#[test]
fn a_declaration_with_reported_mistakes_fails_no_further_check() {
    assert_binding("", &Route::NONE, &["a"], 0);
    assert_pattern("", &Route::NONE, "a");
    assert_routing_key("", &Route::NONE, "a");
    assert_key_policy("", None, KeyPolicy::Ordered);
    assert_earlier_version("orders", 1, "", 1);
    assert_earlier_version("", 1, "orders", 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn patterns_that_part_early_match_no_key_of_the_other(
        one in r"(ab?|b|\*\*?)(\.(ab?|b|\*\*?)){0,4}",
        other in r"(ab?|b|\*\*?)(\.(ab?|b|\*\*?)){0,4}",
        key in r"(ab?|b)(\.(ab?|b)){0,5}",
    ) {
        let both = pattern_matches(&one, &key) && pattern_matches(&other, &key);
        prop_assert!(!(both && part_early(&one, &other)));
    }
}
