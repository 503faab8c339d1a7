/// A text built at compile time. What exceeds its room ends in `...`.
#[derive(Clone, Copy)]
pub struct Sentence {
    bytes: [u8; ROOM],
    len: usize,
    full: bool,
}

const ROOM: usize = 1_000;
const ELLIPSIS: &str = "...";

impl Sentence {
    /// Returns an empty text.
    pub const fn new() -> Self {
        Sentence { bytes: [0; ROOM], len: 0, full: false }
    }

    /// Appends a text.
    pub const fn push(&mut self, text: &str) {
        if self.full {
            return;
        }
        let mut end = text.len();
        if self.len + end > ROOM - ELLIPSIS.len() {
            end = ROOM - ELLIPSIS.len() - self.len;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            self.full = true;
        }
        self.append(text.as_bytes(), end);
        if self.full {
            self.append(ELLIPSIS.as_bytes(), ELLIPSIS.len());
        }
    }

    /// Appends a text between quotation marks.
    pub const fn push_quoted(&mut self, text: &str) {
        self.push("\"");
        self.push(text);
        self.push("\"");
    }

    /// Appends a number.
    pub const fn push_number(&mut self, number: u64) {
        let mut power = 1;
        while number / power >= 10 {
            power *= 10;
        }
        while power > 0 {
            let digit = (number / power % 10) as usize;
            let (_, tail) = "0123456789".split_at(digit);
            let (digit, _) = tail.split_at(1);
            self.push(digit);
            power /= 10;
        }
    }

    /// Returns the text.
    pub const fn as_str(&self) -> &str {
        let (text, _) = self.bytes.split_at(self.len);
        match core::str::from_utf8(text) {
            Ok(text) => text,
            Err(_) => "",
        }
    }

    const fn append(&mut self, bytes: &[u8], end: usize) {
        let mut i = 0;
        while i < end {
            self.bytes[self.len] = bytes[i];
            self.len += 1;
            i += 1;
        }
    }
}

impl Default for Sentence {
    fn default() -> Self {
        Sentence::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 7, 10, 999, 1_000, u64::MAX] {
            let mut sentence = Sentence::new();
            sentence.push_number(number);
            assert_eq!(sentence.as_str(), number.to_string());
        }
    }

    proptest! {
        #[test]
        fn a_sentence_is_its_parts_or_ends_in_dots(parts in prop::collection::vec(".{0,300}", 0..6)) {
            let mut sentence = Sentence::new();
            for part in &parts {
                sentence.push(part);
            }
            let whole = parts.concat();
            if whole.len() <= ROOM - ELLIPSIS.len() {
                prop_assert_eq!(sentence.as_str(), whole);
            } else {
                let cut = sentence.as_str().strip_suffix(ELLIPSIS).expect("dots");
                prop_assert!(whole.starts_with(cut) && cut.len() > ROOM - 8);
            }
        }
    }
}
