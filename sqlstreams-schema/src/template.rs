use std::fmt;
use std::ops::Range;

use crate::route::{MAX_SEGMENTS, check_segment};

/// One segment of a route's template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart<'a> {
    /// A text that every key has here.
    Literal(&'a str),
    /// The field of this name, written `{name}`.
    Field(&'a str),
}

/// Reads a route's template, such as `orders.{region}.{kind}`, into its segments.
///
/// # Errors
///
/// Every segment that breaks a rule.
pub fn parse_template(template: &str) -> Result<Vec<TemplatePart<'_>>, Vec<TemplateProblem>> {
    let mut parts = Vec::new();
    let mut problems = Vec::new();
    let mut start = 0;
    for segment in template.split('.') {
        let range = start..start + segment.len();
        start = range.end + 1;
        match parse_part(segment) {
            Ok(part) if is_repeated(&part, &parts) => {
                problems.push(TemplateProblem { kind: TemplateProblemKind::RepeatedField, range })
            }
            Ok(part) => parts.push(part),
            Err(kind) => problems.push(TemplateProblem { kind, range }),
        }
    }
    if parts.len() > MAX_SEGMENTS {
        problems.push(TemplateProblem { kind: TemplateProblemKind::TooManySegments, range: 0..template.len() });
    }
    if problems.is_empty() { Ok(parts) } else { Err(problems) }
}

fn is_repeated(part: &TemplatePart<'_>, parts: &[TemplatePart<'_>]) -> bool {
    matches!(part, TemplatePart::Field(_)) && parts.contains(part)
}

fn parse_part(segment: &str) -> Result<TemplatePart<'_>, TemplateProblemKind> {
    if segment.is_empty() {
        return Err(TemplateProblemKind::EmptySegment);
    }
    let inner = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    if let Some(name) = inner {
        if name.is_empty() || name.contains(['{', '}']) {
            return Err(TemplateProblemKind::Braces);
        }
        return Ok(TemplatePart::Field(name));
    }
    if segment.contains(['{', '}']) {
        return Err(TemplateProblemKind::Braces);
    }
    if segment.contains('*') {
        return Err(TemplateProblemKind::Star);
    }
    match check_segment(segment) {
        Ok(()) => Ok(TemplatePart::Literal(segment)),
        Err(_) => Err(TemplateProblemKind::Segment),
    }
}

/// A segment of a template that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateProblem {
    /// The rule.
    pub kind: TemplateProblemKind,
    /// The bytes of the template that break it.
    pub range: Range<usize>,
}

/// The rule that a template breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateProblemKind {
    /// Two dots touch, or a dot stands at an end, or there is no text at all.
    EmptySegment,
    /// Braces do not enclose one whole segment.
    Braces,
    /// A star, which only patterns have.
    Star,
    /// A literal that is no segment of a routing key.
    Segment,
    /// A field that an earlier segment names.
    RepeatedField,
    /// More segments than a pattern could have.
    TooManySegments,
}

impl TemplateProblemKind {
    /// Says the rule.
    pub const fn text(&self) -> &'static str {
        match self {
            TemplateProblemKind::EmptySegment => "a route has a text or a `{field}` between its dots",
            TemplateProblemKind::Braces => {
                "braces enclose the name of one field and make a whole segment, such as `{region}`"
            }
            TemplateProblemKind::Star => "a route has no `*`, which only the patterns of groups have",
            TemplateProblemKind::Segment => "a segment has at most 100 bytes, and no white space or control character",
            TemplateProblemKind::RepeatedField => "a route names a field at most once",
            TemplateProblemKind::TooManySegments => "a route has at most 32 segments",
        }
    }
}

impl fmt::Display for TemplateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.text())
    }
}

impl std::error::Error for TemplateProblem {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_template_is_literals_and_fields() {
        assert_eq!(
            parse_template("orders.{region}.{kind}"),
            Ok(vec![TemplatePart::Literal("orders"), TemplatePart::Field("region"), TemplatePart::Field("kind"),])
        );
    }

    #[test]
    fn every_problem_has_its_place() {
        let template = "orders..{}.v-{x}.*.a b.{y}.{y}";
        let problems = parse_template(template).expect_err("problems");
        let found: Vec<_> = problems.iter().map(|problem| (&template[problem.range.clone()], problem.kind)).collect();
        assert_eq!(
            found,
            [
                ("", TemplateProblemKind::EmptySegment),
                ("{}", TemplateProblemKind::Braces),
                ("v-{x}", TemplateProblemKind::Braces),
                ("*", TemplateProblemKind::Star),
                ("a b", TemplateProblemKind::Segment),
                ("{y}", TemplateProblemKind::RepeatedField),
            ]
        );
        let long = vec!["a"; MAX_SEGMENTS + 1].join(".");
        let problems = parse_template(&long).expect_err("problems");
        assert_eq!(problems[0].kind, TemplateProblemKind::TooManySegments);
    }

    proptest! {
        #[test]
        fn no_template_makes_the_parser_panic(template in r"[a{}.*é ]{0,20}") {
            if let Err(problems) = parse_template(&template) {
                prop_assert!(problems.iter().all(|p| template.get(p.range.clone()).is_some()));
            }
        }
    }
}
