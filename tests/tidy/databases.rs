//! Where a database may be named, and where its driver may be used.

use super::rust::{self, Kind, Token, stands};
use super::tree::File;

/// A file outside `backend/` that may do what only backends do.
pub struct Allowed {
    pub path: &'static str,
    pub reason: &'static str,
}

/// Problems of entries whose file is gone or no longer needs them; `used` tells the latter.
pub fn out_of_date(allowed: &[Allowed], files: &[&File], used: impl Fn(&File) -> bool) -> Vec<String> {
    let stale = allowed.iter().filter(|entry| {
        let file = files.iter().find(|file| file.path == entry.path);
        entry.reason.is_empty() || !file.is_some_and(|file| used(file))
    });
    stale.map(|entry| format!("the exception for {} is out of date or says no reason", entry.path)).collect()
}

/// Problems of sources that use the driver.
pub fn drivers(sources: &[&File], allowed: &[Allowed]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources.iter().filter(|file| !is_backend(file) && !is_allowed(file, allowed)) {
        for token in rust::code(&file.text).iter().filter(|token| token.is("sqlx")) {
            problems.push(format!("{}:{}: sqlx outside backend/", file.path, token.line));
        }
    }
    problems
}

/// Problems of sources that use more of the driver than these of its types.
pub fn more_than(types: &[&str], sources: &[&File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources {
        for path in rust::paths_from(&rust::code(&file.text), "sqlx") {
            if path.parts.len() != 2 || !types.contains(&&*path.parts[1]) {
                problems.push(format!("{}:{}: {} in the client", file.path, path.line, path.parts.join("::")));
            }
        }
    }
    problems
}

pub fn uses_driver(file: &File) -> bool {
    rust::code(&file.text).iter().any(|token| token.is("sqlx"))
}

/// Problems of sources whose compilation depends on a database's feature.
pub fn features(sources: &[&File], allowed: &[Allowed]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources.iter().filter(|file| !is_allowed(file, allowed)) {
        for line in feature_lines(file) {
            problems.push(format!("{}:{line}: a database's feature is asked for here", file.path));
        }
    }
    problems
}

pub fn feature_lines(file: &File) -> Vec<usize> {
    // Tests that need one database are conditional too, so they count here.
    let tokens = rust::tokens(&file.text);
    let asks = |at: &usize| {
        stands(&tokens, *at, &["feature", "="])
            && tokens.get(at + 2).is_some_and(|token| token.kind == Kind::Text && names_database(&token.text))
    };
    (0..tokens.len()).filter(asks).map(|at| tokens[at].line).collect()
}

/// Problems of sources that name a database outside its backend, in a word of the code or as a whole string:
/// logic asks what a database can do, never which one it is.
pub fn names(sources: &[&File], allowed: &[Allowed]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources.iter().filter(|file| !is_backend(file) && !is_allowed(file, allowed)) {
        for token in named(&file.text) {
            problems.push(format!("{}:{}: {} outside backend/", file.path, token.line, token.text));
        }
    }
    problems
}

/// Problems of a backend that names another one: `(folder, the words of the others)`.
pub fn neighbours(sources: &[&File], folder: &str, other: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources.iter().filter(|file| file.path.contains(folder)) {
        let tokens = rust::code(&file.text);
        for token in tokens.iter().filter(|token| token.is_word() && token.text.to_lowercase().contains(other)) {
            problems.push(format!("{}:{}: {} in another database's backend", file.path, token.line, token.text));
        }
    }
    problems
}

pub fn named(text: &str) -> Vec<Token> {
    let tokens = rust::code(text);
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_feature = at >= 2 && stands(&tokens, at - 2, &["feature", "="]);
        let counts = match token.kind {
            Kind::Word => names_database(&token.text),
            Kind::Text => !is_feature && ["postgres", "postgresql", "sqlite"].contains(&&*token.text.to_lowercase()),
            _ => false,
        };
        if counts {
            found.push(token.clone());
        }
    }
    found
}

fn names_database(word: &str) -> bool {
    let word = word.to_lowercase();
    word.contains("postgres") || word.contains("sqlite")
}

fn is_backend(file: &File) -> bool {
    file.path.contains("/src/backend/")
}

fn is_allowed(file: &File, allowed: &[Allowed]) -> bool {
    allowed.iter().any(|entry| entry.path == file.path)
}

#[test]
fn the_driver_outside_a_backend_is_found() {
    let file = |path: &str| File::new(path, "use sqlx::PgPool; // sqlx\nfn f() { ::sqlx::query(\"\"); }");
    let database = Allowed { path: "r/src/database.rs", reason: "users hand us pools" };
    assert_eq!(drivers(&[&file("r/src/store.rs")], &[]).len(), 2);
    assert!(drivers(&[&file("r/src/backend/sqlite/mod.rs"), &file("r/src/database.rs")], &[database]).is_empty());
    let client =
        File::new("r/src/client.rs", "use sqlx::Pool; fn f(tx: &mut sqlx::Transaction<'_, D>) { sqlx::query(\"\"); }");
    assert_eq!(more_than(&["Pool", "Transaction"], &[&client]).len(), 1);
    assert!(drivers(&[&File::new("r/src/store.rs", "//! sqlx::query\nconst A: &str = \"sqlx\";")], &[]).is_empty());
}

#[test]
fn a_database_feature_is_found_where_it_does_not_belong() {
    let bad = File::new(
        "r/src/store.rs",
        "#[cfg(any(feature = \"sqlite\", unix))]\nfn f() {}\n#[cfg(feature = \"tls\")] fn g() {}",
    );
    assert_eq!(features(&[&bad], &[]).len(), 1);
    assert!(features(&[&bad], &[Allowed { path: "r/src/store.rs", reason: "a test" }]).is_empty());
    assert_eq!(features(&[&File::new("a.rs", "fn f() { if cfg!(feature = \"postgres\") {} }")], &[]).len(), 1);
}

#[test]
fn a_database_name_outside_its_backend_is_found() {
    let check = |text: &str| names(&[&File::new("r/src/store.rs", text)], &[]).len();
    assert_eq!(check("fn f() { if self.is_sqlite() {} }"), 1);
    assert_eq!(check("fn f(kind: Kind) { matches!(kind, Kind::Postgres) }"), 1);
    assert_eq!(check("fn f(name: &str) { name == \"sqlite\" }"), 1);
    assert_eq!(
        check("/// On Postgres.\n#[cfg(feature = \"sqlite\")]\nconst A: &str = \"Postgres 15 or later is needed\";"),
        0
    );
    let inside = File::new("r/src/backend/sqlite/mod.rs", "struct SqliteBackend; use crate::backend::postgres;");
    assert!(names(&[&inside], &[]).is_empty());
    assert_eq!(neighbours(&[&inside], "/backend/sqlite/", "postgres").len(), 1);
}

#[test]
fn an_exception_that_nothing_needs_is_found() {
    let entry = || [Allowed { path: "r/src/database.rs", reason: "users hand us pools" }];
    let used = File::new("r/src/database.rs", "use sqlx::PgPool;");
    assert!(out_of_date(&entry(), &[&used], uses_driver).is_empty());
    assert_eq!(out_of_date(&entry(), &[&File::new("r/src/database.rs", "")], uses_driver).len(), 1);
    assert_eq!(out_of_date(&entry(), &[], uses_driver).len(), 1);
}
