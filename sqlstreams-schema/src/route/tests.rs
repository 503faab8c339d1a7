use super::*;
use crate::pattern::pattern_matches;
use proptest::prelude::*;

const ORDERS: Route = Route {
    template: "orders.{region}.{kind}",
    segments: &[
        RoutePart::Literal("orders"),
        RoutePart::Field { name: "region", values: Some(&["eu", "us"]) },
        RoutePart::Field { name: "kind", values: None },
    ],
};

#[test]
fn a_route_accepts_its_keys_only() {
    for key in ["orders.eu.created", "orders.us.x", "orders.eu.größe"] {
        assert!(ORDERS.accepts(key), "{key}");
    }
    for key in [
        "",
        "orders",
        "orders.eu",
        "orders.eu.",
        "orders.xx.created",
        "order.eu.created",
        "orders.eu.created.now",
        "orders.eu.cre ated",
        "orders.eu.*",
    ] {
        assert!(!ORDERS.accepts(key), "{key}");
    }
    assert!(!Route::NONE.accepts(""));
    assert!(!Route::NONE.accepts("orders"));
}

#[test]
fn a_pattern_can_match_when_some_key_fits() {
    for pattern in
        ["**", "orders.**", "orders.eu.*", "*.*.*", "**.created", "**.eu.**", "**.orders.eu.created.**", "*.us.größe"]
    {
        assert!(ORDERS.can_match(pattern), "{pattern}");
    }
    for pattern in
        ["orders", "orders.*", "orders.xx.*", "*.*.*.*", "eu.**", "**.eu", "**.orders.orders.**", "orders.eu.cre*", ""]
    {
        let expected = pattern == "**.eu";
        assert_eq!(ORDERS.can_match(pattern), expected, "{pattern}");
    }
    assert!(!Route::NONE.can_match("**"));
}

#[test]
fn a_wider_pattern_covers() {
    for (wide, narrow) in [
        ("**", "orders.eu.*"),
        ("orders.*.*", "orders.eu.created"),
        ("**", "*.*.*"),
        ("*.*.*", "**"),
        ("**.*", "orders.**"),
        ("orders.eu.*", "**.eu.created"),
        ("orders.eu.*", "*.eu.*"),
    ] {
        assert!(ORDERS.covers(wide, narrow), "{wide} covers {narrow}");
    }
    for (wide, narrow) in [
        ("orders.eu.*", "orders.*.*"),
        ("orders.eu.*", "orders.us.*"),
        ("**.created", "orders.eu.*"),
        ("orders.eu.*", "**.eu.**"),
    ] {
        assert!(!ORDERS.covers(wide, narrow), "{wide} covers {narrow}");
    }
}

#[test]
fn a_pattern_covers_when_the_values_leave_no_other_key() {
    const ONE_REGION: Route = Route {
        template: "orders.{region}",
        segments: &[RoutePart::Literal("orders"), RoutePart::Field { name: "region", values: Some(&["eu"]) }],
    };
    assert!(ONE_REGION.covers("orders.eu", "**"));
    assert!(!ORDERS.covers("*.eu.*", "**"));
}

#[test]
fn the_routing_code_runs_at_compile_time() {
    const _: () = assert!(ORDERS.can_match("orders.eu.*"));
    const _: () = assert!(ORDERS.covers("**.*", "orders.eu.*"));
    const _: () = assert!(ORDERS.accepts("orders.eu.created"));
}

#[test]
fn a_hard_proof_ends() {
    const LONG: Route = Route {
        template: "",
        segments: &[RoutePart::Field { name: "field", values: Some(&["a", "b", "c"]) }; MAX_SEGMENTS],
    };
    let wide = "**.a.*.*.*.*.*.a.**.b.*.*.*.b.**.c.**";
    let narrow = "**.a.**.b.*.**.c.**.a.**.b.**";
    assert!(!LONG.covers(wide, narrow));
    assert!(LONG.can_match(wide));
}

#[test]
fn segments_are_checked_rule_by_rule() {
    let long = "x".repeat(MAX_SEGMENT_BYTES);
    for value in ["a", "größe", "日本", "a-b_c", "{a}", &long] {
        assert_eq!(check_segment(value), Ok(()), "{value}");
    }
    let too_long = "x".repeat(MAX_SEGMENT_BYTES + 1);
    for (value, problem) in [
        ("", SegmentProblem::Empty),
        ("a.b", SegmentProblem::Dot),
        ("*", SegmentProblem::Star),
        ("a b", SegmentProblem::BlankOrControl),
        ("a\0", SegmentProblem::BlankOrControl),
        ("a\u{a0}b", SegmentProblem::BlankOrControl),
        ("\u{85}", SegmentProblem::BlankOrControl),
        (too_long.as_str(), SegmentProblem::TooLong),
    ] {
        assert_eq!(check_segment(value), Err(problem), "{value}");
    }
}

const VALUES: [&[&str]; 3] = [&["a"], &["a", "b"], &["a", "b", "c"]];

fn part() -> impl Strategy<Value = RoutePart> {
    prop_oneof![
        prop_oneof![Just("a"), Just("b")].prop_map(RoutePart::Literal),
        (0..VALUES.len()).prop_map(|i| RoutePart::Field { name: "f", values: Some(VALUES[i]) }),
        Just(RoutePart::Field { name: "f", values: None }),
    ]
}

fn route() -> impl Strategy<Value = Route> {
    prop::collection::vec(part(), 1..5).prop_map(|parts| Route { template: "", segments: parts.leak() })
}

fn pattern() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        2 => Just("a"),
        2 => Just("b"),
        1 => Just("d"),
        3 => Just("*"),
        3 => Just("**"),
    ];
    prop::collection::vec(segment, 1..6).prop_map(|segments| segments.join("."))
}

/// Every key of the route, with `e` for the values that no pattern names.
fn keys(route: &Route) -> Vec<String> {
    let mut keys = vec![String::new()];
    for part in route.segments {
        let values: Vec<&str> = match part {
            RoutePart::Literal(text) => vec![text],
            RoutePart::Field { values: None, .. } => vec!["a", "b", "c", "d", "e"],
            RoutePart::Field { values: Some(values), .. } => values.to_vec(),
        };
        keys = keys.iter().flat_map(|key| values.iter().map(move |value| format!("{key}.{value}"))).collect();
    }
    keys.iter().map(|key| key[1..].to_owned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn can_match_equals_trying_every_key(route in route(), pattern in pattern()) {
        let expected = keys(&route).iter().any(|key| pattern_matches(&pattern, key));
        prop_assert_eq!(route.can_match(&pattern), expected);
    }

    #[test]
    fn covers_equals_trying_every_key(route in route(), wide in pattern(), narrow in pattern()) {
        let expected = keys(&route)
            .iter()
            .all(|key| !pattern_matches(&narrow, key) || pattern_matches(&wide, key));
        prop_assert_eq!(route.covers(&wide, &narrow), expected);
    }

    #[test]
    fn every_key_of_a_route_is_accepted(route in route()) {
        prop_assert!(keys(&route).iter().all(|key| route.accepts(key)));
    }

    #[test]
    fn no_text_makes_the_checks_panic(key in any::<String>(), pattern in any::<String>()) {
        let _ = (ORDERS.accepts(&key), ORDERS.can_match(&pattern), ORDERS.covers(&pattern, &key));
        let _ = (check_segment(&key), pattern_matches(&pattern, &key));
    }
}
