//! Enough of Rust's grammar for the checks: tokens without comments, items that only tests compile,
//! functions, and paths.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Word,
    /// A string literal of any form; the token's text is its content.
    Text,
    /// One character of punctuation.
    Symbol,
    /// A number, a character or a lifetime.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub text: String,
    pub line: usize,
}

impl Token {
    pub fn is(&self, text: &str) -> bool {
        self.kind != Kind::Text && self.text == text
    }

    pub fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }
}

/// The tokens of a source text.
pub fn tokens(text: &str) -> Vec<Token> {
    Lexer { letters: text.chars().collect(), at: 0, line: 1, found: Vec::new() }.run()
}

/// The tokens of a source text without the items that only tests compile.
pub fn code(text: &str) -> Vec<Token> {
    without_tests(&tokens(text))
}

/// Whether `words` stand at `at`, one token each.
pub fn stands(tokens: &[Token], at: usize, words: &[&str]) -> bool {
    words.iter().enumerate().all(|(offset, word)| tokens.get(at + offset).is_some_and(|token| token.is(word)))
}

struct Lexer {
    letters: Vec<char>,
    at: usize,
    line: usize,
    found: Vec<Token>,
}

impl Lexer {
    fn run(mut self) -> Vec<Token> {
        while let Some(letter) = self.peek(0) {
            match letter {
                '/' if self.peek(1) == Some('/') => self.skip_line(),
                '/' if self.peek(1) == Some('*') => self.skip_block(),
                '"' => self.string(),
                '\'' => self.quote(),
                letter if letter.is_alphabetic() || letter == '_' => self.word(),
                letter if letter.is_ascii_digit() => self.number(),
                letter => {
                    if !letter.is_whitespace() {
                        self.push(Kind::Symbol, letter.to_string());
                    }
                    self.next();
                }
            }
        }
        self.found
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.letters.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek(0)?;
        self.at += 1;
        self.line += usize::from(letter == '\n');
        Some(letter)
    }

    fn push(&mut self, kind: Kind, text: String) {
        self.found.push(Token { kind, text, line: self.line });
    }

    fn skip_line(&mut self) {
        while self.peek(0).is_some_and(|letter| letter != '\n') {
            self.next();
        }
    }

    fn skip_block(&mut self) {
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                (None, _) => return,
                _ => {
                    self.next();
                    continue;
                }
            }
            self.next();
            self.next();
            if depth == 0 {
                return;
            }
        }
    }

    fn word(&mut self) {
        let mut word = String::new();
        while let Some(letter) = self.peek(0).filter(|letter| letter.is_alphanumeric() || *letter == '_') {
            word.push(letter);
            self.next();
        }
        match (word.as_str(), self.peek(0)) {
            ("b" | "c", Some('"')) => self.string(),
            ("b", Some('\'')) => self.quote(),
            ("r" | "br" | "cr", Some('"' | '#')) if self.begins_raw_string() => self.raw_string(),
            ("r", Some('#')) => {
                self.next();
                self.word();
            }
            _ => self.push(Kind::Word, word),
        }
    }

    fn begins_raw_string(&self) -> bool {
        let hashes = self.letters[self.at..].iter().take_while(|letter| **letter == '#').count();
        self.peek(hashes) == Some('"')
    }

    fn raw_string(&mut self) {
        let line = self.line;
        let mut end = vec!['"'];
        while self.peek(0) == Some('#') {
            end.push('#');
            self.next();
        }
        self.next();
        let mut text = String::new();
        while !self.letters[self.at..].starts_with(&end) {
            match self.next() {
                Some(letter) => text.push(letter),
                None => break,
            }
        }
        for _ in &end {
            self.next();
        }
        self.found.push(Token { kind: Kind::Text, text, line });
    }

    fn string(&mut self) {
        let line = self.line;
        self.next();
        let mut text = String::new();
        while let Some(letter) = self.next().filter(|letter| *letter != '"') {
            match letter {
                '\\' => match self.next() {
                    Some('n') => text.push('\n'),
                    Some('\n') => {
                        while self.peek(0).is_some_and(char::is_whitespace) {
                            self.next();
                        }
                    }
                    Some(escaped) => text.push(escaped),
                    None => {}
                },
                letter => text.push(letter),
            }
        }
        self.found.push(Token { kind: Kind::Text, text, line });
    }

    /// A character (`'a'`, `'\n'`) or a lifetime (`'a`).
    fn quote(&mut self) {
        self.next();
        if self.peek(0) == Some('\\') {
            self.next();
            self.next();
            while self.next().is_some_and(|letter| letter != '\'') {}
        } else if self.peek(1) == Some('\'') {
            self.next();
            self.next();
        } else {
            while self.peek(0).is_some_and(|letter| letter.is_alphanumeric() || letter == '_') {
                self.next();
            }
        }
        self.push(Kind::Other, "'".to_owned());
    }

    fn number(&mut self) {
        while self.peek(0).is_some_and(|letter| letter.is_alphanumeric() || letter == '_') {
            self.next();
        }
        self.push(Kind::Other, "0".to_owned());
    }
}

const ITEMS: [&str; 14] = [
    "fn",
    "mod",
    "use",
    "struct",
    "enum",
    "impl",
    "const",
    "static",
    "type",
    "trait",
    "async",
    "unsafe",
    "extern",
    "macro_rules",
];

fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if stands(tokens, at, &["#", "["]) {
            let end = closing(tokens, at + 1) + 1;
            if is_for_tests(&tokens[at..end]) {
                at = item_end(tokens, end);
            } else {
                kept.extend_from_slice(&tokens[at..end]);
                at = end;
            }
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

fn is_for_tests(attribute: &[Token]) -> bool {
    let words: Vec<&str> = attribute.iter().filter(|token| token.is_word()).map(|token| &*token.text).collect();
    let cfg = words.first() == Some(&"cfg") && words.contains(&"test") && !words.contains(&"not");
    cfg || words == ["test"] || words.ends_with(&["tokio", "test"])
}

/// The index behind the item, field or statement that begins at `at`, with its attributes.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    while stands(tokens, at, &["#", "["]) {
        at = closing(tokens, at + 1) + 1;
    }
    let mut first = at;
    if stands(tokens, first, &["pub"]) {
        first += 1;
        if stands(tokens, first, &["("]) {
            first = closing(tokens, first) + 1;
        }
    }
    let word = tokens.get(first).map_or("", |token| &token.text);
    let is_item = ITEMS.contains(&word);
    while let Some(token) = tokens.get(at) {
        match (token.kind, &*token.text) {
            (Kind::Symbol, "{") if is_item && word != "use" => return closing(tokens, at) + 1,
            (Kind::Symbol, "(" | "[" | "{") => at = closing(tokens, at),
            (Kind::Symbol, ";") => return at + 1,
            (Kind::Symbol, ",") if !is_item => return at + 1,
            (Kind::Symbol, "}") => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

/// The index of the bracket that closes the one at `open`.
pub fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.kind == Kind::Symbol {
            match &*token.text {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len().saturating_sub(1)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    /// From `fn` to the closing brace; 1 for a declaration.
    pub lines: usize,
    /// Where its `fn` stands among the tokens.
    pub at: usize,
}

/// Every function, also nested ones.
pub fn functions(tokens: &[Token]) -> Vec<Function> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        if !tokens[at].is("fn") || !tokens.get(at + 1).is_some_and(Token::is_word) {
            continue;
        }
        let mut end = at + 2;
        while end < tokens.len() && !tokens[end].is("{") && !tokens[end].is(";") {
            end = if tokens[end].is("(") || tokens[end].is("[") { closing(tokens, end) + 1 } else { end + 1 };
        }
        if stands(tokens, end, &["{"]) {
            end = closing(tokens, end);
        }
        let last = tokens.get(end).map_or(tokens[at].line, |token| token.line);
        let (name, line) = (tokens[at + 1].text.clone(), tokens[at].line);
        found.push(Function { name, line, lines: last - line + 1, at });
    }
    found
}

/// A path as written, from its first word; `use` trees give one each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedPath {
    pub parts: Vec<String>,
    pub line: usize,
}

/// Every path that begins with `first`, such as `crate`, and goes on with `::`.
pub fn paths_from(tokens: &[Token], first: &str) -> Vec<UsedPath> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let inside = at >= 2 && stands(tokens, at - 2, &[":", ":"]);
        if stands(tokens, at, &[first, ":", ":"]) && !inside {
            read_path(tokens, at, Vec::new(), &mut found);
        }
    }
    found
}

/// Reads the path at `at` with all branches of its tree, and returns the index behind it.
pub fn read_path(tokens: &[Token], mut at: usize, mut parts: Vec<String>, found: &mut Vec<UsedPath>) -> usize {
    loop {
        let Some(token) = tokens.get(at) else { return at };
        if token.is("{") {
            let end = closing(tokens, at);
            at += 1;
            while at < end {
                let next = read_path(tokens, at, parts.clone(), found).max(at + 1);
                at = if stands(tokens, next, &[","]) { next + 1 } else { next };
            }
            return end + 1;
        }
        if !token.is_word() && !token.is("*") {
            found.push(UsedPath { parts, line: token.line });
            return at;
        }
        parts.push(token.text.clone());
        at += 1;
        let goes_on = tokens.get(at + 2).is_some_and(|next| next.is_word() || next.is("{") || next.is("*"));
        if stands(tokens, at, &[":", ":"]) && goes_on {
            at += 2;
            continue;
        }
        found.push(UsedPath { parts, line: token.line });
        if stands(tokens, at, &["as"]) {
            at += 2;
        }
        return at;
    }
}

#[test]
fn strings_characters_and_comments_are_told_apart() {
    let text = r##"
        // "not a string"
        let a = "one \"two\" \
                 three"; /* 'x' /* nested */ "no" */
        let b = r#"raw "text" \n"#; let c = b"bytes"; let d = '"'; let e: &'static str = "after";
    "##;
    let found = tokens(text);
    let texts: Vec<&str> = found.iter().filter(|token| token.kind == Kind::Text).map(|token| &*token.text).collect();
    assert_eq!(texts, ["one \"two\" three", "raw \"text\" \\n", "bytes", "after"]);
    assert_eq!(found.last().map(|token| token.line), Some(5));
}

#[test]
fn what_only_tests_compile_is_left_out() {
    let text = "
        #[cfg(test)] use std::{fs, io};
        #[cfg(not(test))] fn kept() { one() }
        #[cfg(test)] #[allow(dead_code)] pub(crate) fn gone<A, B>(x: [u8; 3]) { two() }
        struct Kept { #[cfg(test)] gone: Option<(A, B)>, last: u8 }
        #[test] fn gone_too() { three() }
        #[cfg(all(test, unix))] mod tests { fn four() {} }
        fn also_kept() {}
    ";
    let words: Vec<String> =
        code(text).into_iter().filter(|token| token.kind == Kind::Word).map(|token| token.text).collect();
    assert_eq!(words, ["cfg", "not", "test", "fn", "kept", "one", "struct", "Kept", "last", "u8", "fn", "also_kept"]);
}

#[test]
fn functions_are_measured_to_their_closing_brace() {
    let text = "trait T { fn declared(&self); }\nfn outer(f: fn(u8)) -> [u8; 2] {\n  fn inner() {}\n  x\n}\n";
    let found: Vec<_> = functions(&tokens(text)).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
    assert_eq!(found, [("declared".into(), 1, 1), ("outer".into(), 2, 4), ("inner".into(), 3, 1)]);
}

#[test]
fn a_use_tree_gives_all_of_its_paths() {
    let text = "use crate::{a::{B, c as d}, e::*}; fn f() { crate::g::<T>(); x::crate_::y(); crate::h!(); }";
    let found: Vec<String> = paths_from(&tokens(text), "crate").into_iter().map(|path| path.parts.join("::")).collect();
    assert_eq!(found, ["crate::a::B", "crate::a::c", "crate::e::*", "crate::g", "crate::h"]);
}
