use std::fmt;

/// The longest name of a stream or a group, in bytes.
pub const MAX_NAME_BYTES: usize = 200;

/// Checks the name of a stream: lower-case letters, digits, `-`, `_`, in segments divided by single dots.
///
/// # Errors
///
/// The first rule that the name breaks.
pub const fn check_stream_name(name: &str) -> Result<(), NameProblem> {
    check_name(name)
}

/// Checks the name of a group; the rules are those of [`check_stream_name`].
///
/// # Errors
///
/// The first rule that the name breaks.
pub const fn check_group_name(name: &str) -> Result<(), NameProblem> {
    check_name(name)
}

/// The rule that a name breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameProblem {
    /// The name has no characters.
    Empty,
    /// The name has more than [`MAX_NAME_BYTES`] bytes.
    TooLong,
    /// The name begins with `__`.
    Reserved,
    /// The first character is neither a lower-case letter nor a digit.
    FirstCharacter,
    /// A character is not one of those a name is made of.
    Character,
    /// Two dots touch, or the last character is a dot.
    EmptySegment,
}

impl NameProblem {
    /// Says the rule.
    pub const fn text(&self) -> &'static str {
        match self {
            NameProblem::Empty => "a name has at least one character",
            NameProblem::TooLong => "a name has at most 200 bytes",
            NameProblem::Reserved => "names that begin with `__` are reserved",
            NameProblem::FirstCharacter => "a name begins with a lower-case letter or a digit",
            NameProblem::Character => "a name is made of lower-case letters, digits, `-`, `_` and `.`",
            NameProblem::EmptySegment => "a dot in a name stands between two segments",
        }
    }
}

impl fmt::Display for NameProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for NameProblem {}

const fn check_name(name: &str) -> Result<(), NameProblem> {
    let bytes = name.as_bytes();
    if bytes.is_empty() {
        return Err(NameProblem::Empty);
    }
    if bytes.len() > MAX_NAME_BYTES {
        return Err(NameProblem::TooLong);
    }
    if bytes.len() >= 2 && bytes[0] == b'_' && bytes[1] == b'_' {
        return Err(NameProblem::Reserved);
    }
    if !matches!(bytes[0], b'a'..=b'z' | b'0'..=b'9') {
        return Err(NameProblem::FirstCharacter);
    }
    let mut i = 0;
    while i < bytes.len() {
        if !matches!(bytes[i], b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-') {
            return Err(NameProblem::Character);
        }
        if bytes[i] == b'.' && (i + 1 == bytes.len() || bytes[i + 1] == b'.') {
            return Err(NameProblem::EmptySegment);
        }
        i += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_names_pass() {
        for name in ["a", "orders.placed", "email-receipts", "0", "a_b.c-d.9"] {
            assert_eq!(check_stream_name(name), Ok(()), "{name}");
            assert_eq!(check_group_name(name), Ok(()), "{name}");
        }
        assert_eq!(check_stream_name(&"x".repeat(MAX_NAME_BYTES)), Ok(()));
    }

    #[test]
    fn each_rule_names_itself() {
        let cases = [
            ("", NameProblem::Empty),
            ("__sys", NameProblem::Reserved),
            ("Orders", NameProblem::FirstCharacter),
            (".orders", NameProblem::FirstCharacter),
            ("_orders", NameProblem::FirstCharacter),
            ("é", NameProblem::FirstCharacter),
            ("orders placed", NameProblem::Character),
            ("orders.Placed", NameProblem::Character),
            ("orderé", NameProblem::Character),
            ("orders.*", NameProblem::Character),
            ("orders..placed", NameProblem::EmptySegment),
            ("orders.", NameProblem::EmptySegment),
        ];
        for (name, problem) in cases {
            assert_eq!(check_stream_name(name), Err(problem), "{name}");
        }
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        assert_eq!(check_stream_name(&long), Err(NameProblem::TooLong));
    }

    proptest! {
        #[test]
        fn the_check_equals_its_regex(name in "[a-zA-Z0-9._é -]{0,8}") {
            let rule = regex::Regex::new(r"^[a-z0-9][a-z0-9._-]*$").expect("regex");
            let expected = rule.is_match(&name) && name.split('.').all(|s| !s.is_empty());
            prop_assert_eq!(check_stream_name(&name).is_ok(), expected);
        }
    }
}
