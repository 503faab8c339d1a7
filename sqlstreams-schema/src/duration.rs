use std::fmt;
use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a duration as declarations write it: whole numbers with the units `ms`, `s`, `m`, `h` and `d`, such
/// as `250ms`, `30s` or `1h30m`.
///
/// # Errors
///
/// What is wrong with the text.
pub fn parse_duration(text: &str) -> Result<Duration, DurationProblem> {
    let mut total: u64 = 0;
    let mut rest = text;
    if rest.is_empty() {
        return Err(DurationProblem::Empty);
    }
    while !rest.is_empty() {
        let (number, tail) = split_when(rest, |c| !c.is_ascii_digit());
        let (unit, tail) = split_when(tail, |c| c.is_ascii_digit());
        if number.is_empty() {
            return Err(DurationProblem::Number);
        }
        let Some((_, millis)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationProblem::Unit);
        };
        total = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(*millis))
            .and_then(|part| total.checked_add(part))
            .filter(|total| *total <= MAX_MILLIS)
            .ok_or(DurationProblem::TooLong)?;
        rest = tail;
    }
    Ok(Duration::from_millis(total))
}

/// A hundred years; what is stored as microseconds in a 64-bit integer holds it.
const MAX_MILLIS: u64 = 36_500 * 86_400_000;

fn split_when(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

/// What is wrong with the text of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DurationProblem {
    /// The text has no characters.
    Empty,
    /// A number is missing.
    Number,
    /// A unit is missing or unknown.
    Unit,
    /// The duration exceeds a hundred years.
    TooLong,
}

impl DurationProblem {
    /// Says the rule.
    pub const fn text(&self) -> &'static str {
        match self {
            DurationProblem::Empty | DurationProblem::Number => {
                "a duration is a whole number and a unit, such as `30s` or `1h30m`"
            }
            DurationProblem::Unit => "the units of a duration are `ms`, `s`, `m`, `h` and `d`",
            DurationProblem::TooLong => "a duration is at most a hundred years",
        }
    }
}

impl fmt::Display for DurationProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for DurationProblem {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_numbers_with_units() {
        for (text, millis) in
            [("0s", 0), ("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h30m", 5_400_000), ("2d", 172_800_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)));
        }
        for (text, problem) in [
            ("", DurationProblem::Empty),
            ("s", DurationProblem::Number),
            ("-1s", DurationProblem::Number),
            ("5", DurationProblem::Unit),
            ("5 s", DurationProblem::Unit),
            ("1.5s", DurationProblem::Unit),
            ("5sec", DurationProblem::Unit),
            ("99999999999999999999s", DurationProblem::TooLong),
            ("36501d", DurationProblem::TooLong),
        ] {
            assert_eq!(parse_duration(text), Err(problem), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9msdhé .]{0,30}") {
            let _ = parse_duration(&text);
        }
    }
}
