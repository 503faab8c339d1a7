//! Lengths, and words that must not stay behind.

use super::rust::{self, stands};
use super::tree::File;

/// Problems of files with more lines than `limit`.
pub fn long_files(files: &[&File], limit: usize) -> Vec<String> {
    let long = files.iter().map(|file| (file, file.text.lines().count())).filter(|(_, lines)| *lines > limit);
    long.map(|(file, lines)| format!("{}: {lines} lines; {limit} are the most", file.path)).collect()
}

/// Problems of functions with more lines than `limit`.
pub fn long_functions(files: &[&File], limit: usize) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        for function in rust::functions(&rust::tokens(&file.text)).into_iter().filter(|found| found.lines > limit) {
            let rust::Function { name, line, lines, .. } = function;
            problems.push(format!("{}:{line}: fn {name} has {lines} lines; {limit} are the most", file.path));
        }
    }
    problems
}

/// The number of functions.
pub fn count_functions(files: &[&File]) -> usize {
    files.iter().map(|file| rust::functions(&rust::tokens(&file.text)).len()).sum()
}

/// Problems of functions that a macro's user enters by, with more lines than `limit`.
pub fn long_macro_entries(files: &[&File], limit: usize) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        let tokens = rust::tokens(&file.text);
        for function in rust::functions(&tokens).into_iter().filter(|found| found.lines > limit) {
            let before = &tokens[function.at.saturating_sub(40)..function.at];
            let start = before.iter().rposition(|token| token.is("}") || token.is(";")).map_or(0, |at| at + 1);
            if before[start..].iter().any(|token| token.text.starts_with("proc_macro") && token.is_word()) {
                let rust::Function { name, line, lines, .. } = function;
                problems
                    .push(format!("{}:{line}: macro entry {name} has {lines} lines; {limit} are the most", file.path));
            }
        }
    }
    problems
}

/// Problems of library code that panics where a caller could be told.
pub fn unwraps(sources: &[&File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources {
        let tokens = rust::code(&file.text);
        for at in (0..tokens.len()).filter(|at| stands(&tokens, *at, &[".", "unwrap", "(", ")"])) {
            problems.push(format!("{}:{}: unwrap in library code", file.path, tokens[at].line));
        }
    }
    problems
}

/// Problems of tests that wait for a time to pass instead of for the thing itself.
pub fn sleeps(tests: &[&File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in tests {
        let tokens = rust::tokens(&file.text);
        for at in (0..tokens.len()).filter(|at| stands(&tokens, *at, &["sleep", "("])) {
            problems.push(format!("{}:{}: a test sleeps", file.path, tokens[at].line));
        }
    }
    problems
}

/// Problems of files with reminders in them; what is left to do belongs elsewhere.
pub fn reminders(files: &[File]) -> Vec<String> {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("to", "do!("), concat!("unimple", "mented!(")];
    lines_with(files, |line| words.iter().any(|word| holds_word(line, word)), "a reminder is left")
}

/// Problems of files that name a place on somebody's machine.
pub fn machine_paths(files: &[File]) -> Vec<String> {
    let starts = [
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
        concat!("/wo", "rk/"),
        concat!(":\\Us", "ers\\"),
    ];
    let names = |line: &str| {
        starts.iter().any(|start| {
            line.match_indices(start).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                start.starts_with(':')
                    || !before.is_some_and(|letter| letter.is_alphanumeric() || "._-}~*)".contains(letter))
            })
        })
    };
    lines_with(files, names, "a path of one machine")
}

fn lines_with(files: &[File], is_wrong: impl Fn(&str) -> bool, problem: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate().filter(|(_, line)| is_wrong(line)) {
            problems.push(format!("{}:{}: {problem}: {}", file.path, number + 1, line.trim()));
        }
    }
    problems
}

fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next().filter(|_| !word.ends_with('('));
        [before, after].into_iter().flatten().all(|letter| !letter.is_alphanumeric() && letter != '_')
    })
}

#[test]
fn what_is_too_long_is_found() {
    let body = "    x();\n".repeat(9);
    let file = File::new(
        "a.rs",
        &format!("#[proc_macro_derive(Stream, attributes(stream))]\npub fn f() {{\n{body}}}\nfn g() {{}}\n"),
    );
    assert_eq!((long_functions(&[&file], 10).len(), long_functions(&[&file], 11).len()), (1, 0));
    assert_eq!((long_macro_entries(&[&file], 10).len(), long_macro_entries(&[&file], 11).len()), (1, 0));
    assert!(long_macro_entries(&[&File::new("a.rs", &format!("fn f() {{\n{body}}}\n"))], 10).is_empty());
    assert_eq!((long_files(&[&file], 12).len(), long_files(&[&file], 13).len()), (1, 0));
    assert_eq!(count_functions(&[&file]), 2);
}

#[test]
fn an_unwrap_in_library_code_is_found() {
    let check = |text: &str| unwraps(&[&File::new("a.rs", text)]).len();
    assert_eq!(check("fn f() { x\n    .unwrap(); }"), 1);
    assert_eq!(check("/// x.unwrap()\nfn f() { x.unwrap_or(1); y.unwrap_or_default() }"), 0);
    assert_eq!(check("#[cfg(test)] mod tests { fn f() { x.unwrap() } }"), 0);
}

#[test]
fn a_sleeping_test_is_found() {
    let check = |text: &str| sleeps(&[&File::new("a.rs", text)]).len();
    assert_eq!(check("async fn f() { tokio::time::sleep(SECOND).await }"), 1);
    assert_eq!(check("// sleep(\nfn sleepless() { no_sleep(1) }"), 0);
}

#[test]
fn a_reminder_is_found() {
    let check = |text: &str| reminders(&[File::new("a.md", text)]).len();
    assert_eq!(check(concat!("// TO", "DO: later")), 1);
    assert_eq!(check(concat!("fn f() { to", "do!() }")), 1);
    assert_eq!(check(concat!("-- FIX", "ME")), 1);
    assert_eq!(check("Everything is done. TODOS"), 0);
}

#[test]
fn a_path_of_one_machine_is_found() {
    let check = |text: &str| machine_paths(&[File::new("a.md", text)]).len();
    assert_eq!(check(concat!("see `/ho", "me/me/x`")), 1);
    assert_eq!(check(concat!("cd /wo", "rk/main")), 1);
    assert_eq!(check(concat!("C:\\Us", "ers\\me")), 1);
    assert_eq!(check("/usr/lib/postgresql/15/bin network/workshop/x $HOME/root/x"), 0);
}
