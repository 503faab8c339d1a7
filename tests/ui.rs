//! What a mistake in a declaration looks like to the person who made it: each file under `tests/ui/` is one
//! kind of mistake, beside it the compiler's exact words.
//!
//! `TRYBUILD=overwrite cargo test --test ui` writes the words anew; read them before you commit them.

use std::process::Command;

const TOOLCHAIN: &str = include_str!("../rust-toolchain.toml");

#[test]
fn mistakes_are_explained_and_correct_declarations_compile() {
    require_pinned_compiler();
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/correct/*.rs");
    for kind in MISTAKES {
        cases.compile_fail(format!("tests/ui/{kind}/*.rs"));
    }
}

const MISTAKES: [&str; 13] = [
    "attribute",
    "binding",
    "database",
    "group",
    "handler",
    "idempotency",
    "key",
    "literal",
    "name",
    "payload",
    "policy",
    "route",
    "version",
];

#[test]
fn every_folder_of_mistakes_is_tested() {
    let folders = std::fs::read_dir("tests/ui").expect("tests/ui");
    let mut folders: Vec<String> = folders
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "correct")
        .collect();
    folders.sort();
    assert_eq!(folders, MISTAKES);
}

/// The compiler's own words change between its versions, so another one would fail with a page of differences.
fn require_pinned_compiler() {
    let pinned = TOOLCHAIN
        .lines()
        .find_map(|line| line.strip_prefix("channel = "))
        .map(|version| version.trim_matches('"'))
        .expect("rust-toolchain.toml names a channel");
    let output = Command::new("rustc").arg("--version").output().expect("rustc runs");
    let version = String::from_utf8_lossy(&output.stdout);
    assert!(
        version.starts_with(&format!("rustc {pinned} ")),
        "the texts under tests/ui are those of rustc {pinned}, and this is {} - run the test with the toolchain \
         that rust-toolchain.toml pins",
        version.trim(),
    );
}
