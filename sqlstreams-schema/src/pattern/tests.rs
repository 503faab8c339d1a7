use super::*;
use proptest::prelude::*;

#[test]
fn patterns_are_checked_rule_by_rule() {
    for pattern in ["a", "*", "**", "a.*.b", "**.a.**", "a.größe", "**.**"] {
        assert_eq!(check_pattern(pattern), Ok(()), "{pattern}");
    }
    let long = format!("a.{}", "x".repeat(101));
    for (pattern, problem) in [
        ("", PatternProblem::Empty),
        (".a", PatternProblem::EmptySegment),
        ("a.", PatternProblem::EmptySegment),
        ("a..b", PatternProblem::EmptySegment),
        ("a*", PatternProblem::PartialStar),
        ("a.***", PatternProblem::PartialStar),
        ("a b", PatternProblem::BlankOrControl),
        (long.as_str(), PatternProblem::SegmentTooLong),
    ] {
        assert_eq!(check_pattern(pattern), Err(problem), "{pattern}");
    }
    let many = vec!["*"; MAX_SEGMENTS + 1].join(".");
    assert_eq!(check_pattern(&many), Err(PatternProblem::TooManySegments));
    assert_eq!(check_pattern(&many[2..]), Ok(()));
}

#[test]
fn a_star_is_one_segment_and_does_not_cross_dots() {
    assert!(pattern_matches("orders.*", "orders.eu"));
    assert!(!pattern_matches("orders.*", "orders"));
    assert!(!pattern_matches("orders.*", "orders.eu.created"));
    assert!(!pattern_matches("*", ""));
}

#[test]
fn two_stars_are_any_number_of_segments_also_none() {
    for key in ["orders", "orders.eu", "orders.eu.created"] {
        assert!(pattern_matches("orders.**", key), "{key}");
        assert!(pattern_matches("**", key), "{key}");
    }
    assert!(pattern_matches("**", ""));
    assert!(pattern_matches("**.created", "created"));
    assert!(pattern_matches("a.**.b.**.c", "a.b.b.x.c"));
    assert!(!pattern_matches("a.**.b", "a.b.c"));
    assert!(!pattern_matches("orders.**", "ordersx"));
}

#[test]
fn an_empty_segment_is_matched_by_nothing() {
    for key in [".", "a.", ".a", "a..b"] {
        for pattern in ["*", "**", "a.*", "*.a", "a.**", "a.**.b", "a.*.b"] {
            assert!(!pattern_matches(pattern, key), "{pattern} {key}");
        }
    }
}

#[test]
fn a_regex_escapes_what_postgres_would_read() {
    assert_eq!(pattern_to_regex("a+b.*.**"), r"^a\+b\.[^.]+(?:\.[^.]+)*$");
    assert_eq!(pattern_to_regex("**.(x)"), r"^(?:[^.]+\.)*\(x\)$");
    assert_eq!(pattern_to_regex("**.**"), pattern_to_regex("**"));
}

fn pattern() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        3 => "[ab]",
        1 => r"[]\[+?(){}|^$\\ü-]{1,3}",
        3 => Just("*".to_owned()),
        3 => Just("**".to_owned()),
    ];
    prop::collection::vec(segment, 1..7).prop_map(|segments| segments.join("."))
}

/// The definition of matching, without any cleverness.
fn matches_by_definition(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern.split_first(), key.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((&"**", rest)), None) => matches_by_definition(rest, key),
        (Some((&"**", rest)), Some((value, tail))) => {
            matches_by_definition(rest, key) || (!value.is_empty() && matches_by_definition(pattern, tail))
        }
        (Some((segment, rest)), Some((value, tail))) => {
            !value.is_empty() && (*segment == "*" || segment == value) && matches_by_definition(rest, tail)
        }
        (Some(_), None) => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn matching_follows_the_definition(pattern in pattern(), key in r"[ab.]{0,12}|[ab](\.[ab]){0,7}") {
        let segments: Vec<&str> = pattern.split('.').collect();
        let values: Vec<&str> = if key.is_empty() { vec![] } else { key.split('.').collect() };
        let expected = matches_by_definition(&segments, &values);
        prop_assert_eq!(pattern_matches(&pattern, &key), expected);
    }

    #[test]
    fn the_regex_accepts_what_the_pattern_matches(
        pattern in pattern(),
        key in r"[ab.]{0,10}|[ab](\.[ab]){0,7}|[ab]\.[]\[+?(){}|^$\\ü-]{1,3}(\.b)?",
    ) {
        let regex = regex::Regex::new(&pattern_to_regex(&pattern)).expect("a regex");
        prop_assert_eq!(regex.is_match(&key), pattern_matches(&pattern, &key));
    }
}
