//! String handling that works in `const fn`.

/// Walks the segments between the dots of a text; an empty text has none.
pub(crate) struct Segments<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Segments<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        Segments { rest: if bytes.is_empty() { None } else { Some(bytes) } }
    }

    pub(crate) const fn copy(&self) -> Self {
        Segments { rest: self.rest }
    }

    pub(crate) const fn next(&mut self) -> Option<&'a [u8]> {
        let Some(rest) = self.rest else { return None };
        let len = rest.len();
        let mut end = 0;
        while end < len && rest[end] != b'.' {
            end += 1;
        }
        let (segment, tail) = rest.split_at(end);
        self.rest = match tail.split_first() {
            Some((_, after_dot)) => Some(after_dot),
            None => None,
        };
        Some(segment)
    }
}

/// Counts the segments of a text.
pub(crate) const fn count_segments(text: &str) -> usize {
    let bytes = text.as_bytes();
    let len = bytes.len();
    let mut count = if len == 0 { 0 } else { 1 };
    let mut i = 0;
    while i < len {
        if bytes[i] == b'.' {
            count += 1;
        }
        i += 1;
    }
    count
}

/// Compares two byte strings.
///
/// The compiler takes microseconds for a turn of such a loop, and `len` is a good part of it.
pub(crate) const fn bytes_eq(left: &[u8], right: &[u8]) -> bool {
    let len = left.len();
    if len != right.len() {
        return false;
    }
    let mut i = 0;
    while i < len {
        if left[i] != right[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Whether the text holds a white space or control character. The bytes are those of a `str`, cut at dots.
pub(crate) const fn has_blank_or_control(bytes: &[u8]) -> bool {
    let mut i = 0;
    while i < bytes.len() {
        // Most texts are ASCII, and the compiler evaluates this slowly.
        if matches!(bytes[i], b'!'..=b'~') {
            i += 1;
            continue;
        }
        let (code, width) = decode(bytes, i);
        let control = code < 0x20 || (code >= 0x7f && code <= 0x9f);
        let blank = match char::from_u32(code) {
            Some(character) => character.is_whitespace(),
            None => false,
        };
        if control || blank {
            return true;
        }
        i += width;
    }
    false
}

const fn decode(bytes: &[u8], at: usize) -> (u32, usize) {
    let first = bytes[at] as u32;
    let (mut code, width) = match first {
        0..0x80 => (first, 1),
        0x80..0xe0 => (first & 0x1f, 2),
        0xe0..0xf0 => (first & 0x0f, 3),
        _ => (first & 0x07, 4),
    };
    let mut i = 1;
    while i < width && at + i < bytes.len() {
        code = (code << 6) | (bytes[at + i] as u32 & 0x3f);
        i += 1;
    }
    (code, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &str) -> Vec<&[u8]> {
        let mut segments = Segments::new(text);
        std::iter::from_fn(|| segments.next()).collect()
    }

    #[test]
    fn an_empty_text_has_no_segments_and_a_dot_has_two() {
        assert!(split("").is_empty());
        assert_eq!(split("."), [b"", b""]);
        assert_eq!(split("a.b"), [b"a", b"b"]);
    }

    proptest! {
        #[test]
        fn segments_are_those_of_split(text in ".{1,20}") {
            let expected: Vec<_> = text.split('.').map(str::as_bytes).collect();
            prop_assert_eq!(split(&text), expected);
            prop_assert_eq!(count_segments(&text), text.split('.').count());
        }

        #[test]
        fn comparison_is_that_of_slices(left in "[ab]{0,3}", right in "[ab]{0,3}") {
            prop_assert_eq!(bytes_eq(left.as_bytes(), right.as_bytes()), left == right);
        }

        #[test]
        fn blanks_and_controls_are_those_of_char(text in any::<String>()) {
            let expected = text.chars().any(|c| c.is_whitespace() || c.is_control());
            prop_assert_eq!(has_blank_or_control(text.as_bytes()), expected);
        }
    }
}
