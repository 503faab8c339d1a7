//! Where SQL stands, and how its files are named, used and mirrored.

use super::rust::{self, Kind, Token, stands};
use super::tree::File;

/// Problems of Rust sources that hold SQL in their strings; it belongs into `.sql` files, where people and
/// tools find it and a test prepares it on the real database.
pub fn in_strings(sources: &[&File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources {
        for token in rust::code(&file.text).iter().filter(|token| token.kind == Kind::Text && is_sql(&token.text)) {
            problems.push(format!("{}:{}: SQL in a Rust string: {:?}", file.path, token.line, token.text));
        }
    }
    problems
}

/// Statements that read like nothing else, wherever they stand in the text.
const ANYWHERE: [&str; 3] = ["insert into ", "delete from ", "select set_config("];
/// Statements recognised by how the text begins.
const BEGINNINGS: &[&str] = &[
    "select ",
    "begin immediate",
    "begin exclusive",
    "begin deferred",
    "begin transaction",
    "begin;",
    "start transaction",
    "commit;",
    "commit prepared",
    "rollback to",
    "rollback prepared",
    "rollback;",
    "savepoint ",
    "release savepoint",
    "prepare transaction",
    "listen ",
    "unlisten ",
    "notify ",
    "set local ",
    "set session ",
    "set transaction ",
    "set role ",
    "set constraints ",
    "pragma ",
    "lock table ",
    "truncate table ",
    "vacuum ",
    "vacuum(",
    "analyze ",
    "explain ",
    "attach database ",
    "create table ",
    "create index ",
    "create unique index ",
    "create schema ",
    "create function ",
    "create or replace ",
    "create trigger ",
    "create type ",
    "create role ",
    "create temp",
    "alter table ",
    "alter role ",
    "drop table ",
    "drop index ",
    "drop schema ",
    "drop function ",
    "do $",
];
/// Whole texts that are statements.
const WHOLE: [&str; 7] = ["begin", "commit", "rollback", "vacuum", "analyze", "discard all", "end"];

/// Whether a text is a statement or a part of one, rather than a sentence for people.
pub fn is_sql(text: &str) -> bool {
    let without_comments: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let words: Vec<String> = without_comments.join(" ").split_whitespace().map(str::to_lowercase).collect();
    let text = words.join(" ");
    let updates = words
        .iter()
        .enumerate()
        .any(|(at, word)| word == "update" && words[at + 1..].iter().take(4).any(|word| word == "set"));
    let with = words.first().is_some_and(|word| word == "with") && text.contains(" as (")
        || words.first().is_some_and(|word| word == "with") && text.contains(" as materialized (");
    let copy = words.first().is_some_and(|word| word == "copy") && text.contains(" stdin");
    let inner = text.split(['(', ' ', ')']).skip_while(|word| *word != "select").collect::<Vec<_>>();
    let selects = inner.contains(&"from") && (inner.contains(&"where") || inner.contains(&"*"));
    updates
        || with
        || copy
        || selects
        || ANYWHERE.iter().any(|part| text.contains(part))
        || BEGINNINGS.iter().any(|start| text.starts_with(start))
        || WHOLE.contains(&&*text)
}

/// Problems of one statement's file: its owner tag and the number of statements.
pub fn of_file(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    let first = file.text.lines().next().unwrap_or_default();
    let tag = first.strip_prefix("-- sqlstreams: ").unwrap_or_default();
    let (noun, verb) = tag.split_once('.').unwrap_or_default();
    if noun.is_empty() || verb.is_empty() || format!("{noun}_{verb}") != file.stem() {
        problems.push(format!(
            "{}:1: the first line must be `-- sqlstreams: <noun>.<verb>` with the noun_verb of the file's name, not {first:?}",
            file.path
        ));
    }
    let count = statements(&file.text);
    if count != 1 {
        problems.push(format!("{}: {count} statements; a file holds one", file.path));
    }
    problems
}

/// The number of statements in a text: comments, quoted names, strings and dollar quotes are no separators.
pub fn statements(text: &str) -> usize {
    let mut count = 0;
    let mut open = false;
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let length = match letter {
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '\'' | '"' => {
                open = true;
                rest[1..].find(letter).map_or(rest.len(), |end| end + 2)
            }
            '$' => {
                open = true;
                dollar_quoted(rest).unwrap_or(1)
            }
            ';' => {
                count += usize::from(open);
                open = false;
                1
            }
            letter => {
                open |= !letter.is_whitespace();
                letter.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    count + usize::from(open)
}

/// The length of a text in dollar quotes (`$$…$$`, `$body$…$body$`) that begins here; none for `$1`.
fn dollar_quoted(text: &str) -> Option<usize> {
    let tag = &text[..text[1..].find('$')? + 2];
    let is_tag = tag[1..tag.len() - 1].chars().all(|letter| letter.is_alphabetic() || letter == '_');
    if !is_tag {
        return None;
    }
    Some(text[tag.len()..].find(tag).map_or(text.len(), |end| end + 2 * tag.len()))
}

/// A statement that only one of the databases needs.
pub struct OnlyIn {
    pub database: &'static str,
    pub name: &'static str,
    pub reason: &'static str,
}

/// Problems of two folders that should mirror each other: every name in both, or listed with its reason. A
/// database may take several statements for one operation: their names go on from the one that both have.
pub fn mirrored(names: [(&str, &[&str]); 2], exceptions: &[OnlyIn]) -> Vec<String> {
    let mut problems = Vec::new();
    let [one, other] = names;
    for ((database, here), (_, there)) in [(one, other), (other, one)] {
        let both: Vec<_> = here.iter().filter(|name| there.contains(name)).collect();
        let is_part =
            |name: &str| both.iter().any(|whole| name.strip_prefix(**whole).is_some_and(|rest| rest.starts_with('_')));
        for name in here.iter().filter(|name| !there.contains(name) && !is_part(name)) {
            if !exceptions.iter().any(|entry| entry.database == database && entry.name == *name) {
                problems.push(format!("{name}.sql exists only in {database}, and no exception says why"));
            }
        }
    }
    for entry in exceptions {
        let of = |wanted: bool| names.iter().find(|(database, _)| (*database == entry.database) == wanted);
        let here = of(true).is_some_and(|(_, here)| here.contains(&entry.name));
        let there = of(false).is_some_and(|(_, there)| there.contains(&entry.name));
        if !here || there || entry.reason.is_empty() {
            problems.push(format!(
                "the exception for {} of {} is out of date or says no reason",
                entry.name, entry.database
            ));
        }
    }
    problems
}

/// Problems of statements that no source of their backend loads, or loads without running them.
pub fn unused(statement_files: &[&File], sources: &[&File]) -> Vec<String> {
    let code: Vec<Vec<Token>> = sources.iter().map(|file| rust::code(&file.text)).collect();
    let mut problems = Vec::new();
    for file in statement_files {
        let stem = file.stem();
        let literal = format!("{stem}.sql");
        let named = |token: &Token| {
            token.kind == Kind::Text && (token.text == literal || token.text.ends_with(&format!("/{literal}")))
        };
        let by_literal = code.iter().flatten().any(named);
        let by_macro = code.iter().any(|tokens| listed(tokens).iter().any(|token| token.is(stem)));
        let run = code.iter().any(|tokens| (0..tokens.len()).any(|at| stands(tokens, at, &[".", stem])));
        if !by_literal && !by_macro {
            problems.push(format!("{} is loaded by no source", file.path));
        } else if by_macro && !run {
            problems.push(format!("{} is loaded, but no source runs it", file.path));
        }
    }
    problems
}

/// The tokens inside the invocations of `statements!`, which loads the files that it lists.
fn listed(tokens: &[Token]) -> Vec<&Token> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        if stands(tokens, at, &["statements", "!", "{"]) {
            found.extend(&tokens[at + 3..rust::closing(tokens, at + 2)]);
        }
    }
    found
}

#[test]
fn sql_in_a_string_is_found_and_a_sentence_is_not() {
    let statements = [
        "select 1",
        "SELECT id\n FROM t",
        "insert into t values ($1)",
        "-- tag\nupdate \"s\".t set a = 1",
        "delete from t",
        "with x as (select 1) insert into t select * from x",
        "begin immediate",
        "COMMIT",
        "pragma data_version",
        "listen wake",
        "create table t (a int)",
        "copy t (a) from stdin",
        " where a = (select b from t where c = 1)",
        "update t as u\nset a = 1",
    ];
    for statement in statements {
        let bad = File::new("x.rs", &format!("fn f() {{ run(r#\"{statement}\"#); }}"));
        assert_eq!(in_strings(&[&bad]).len(), 1, "{statement}");
    }
    let sentences = [
        "update this program",
        "choose a group",
        "the rows were not set",
        "listening for messages",
        "with care",
        "roll back and run the transaction again",
        "set a longer timeout",
        "the insert and the select",
    ];
    for sentence in sentences {
        assert!(!is_sql(sentence), "{sentence}");
    }
    let fine = File::new("x.rs", "/// `select 1`\nfn f() {} #[cfg(test)] mod tests { const A: &str = \"select 1\"; }");
    assert!(in_strings(&[&fine]).is_empty());
}

#[test]
fn a_file_without_its_tag_or_with_two_statements_is_found() {
    let good = "-- sqlstreams: claim.take\n-- why; and how\nselect ';', $1, $$ ; $$ from \"a;b\" /* ; */;\n";
    assert!(of_file(&File::new("sql/claim_take.sql", good)).is_empty());
    assert_eq!(of_file(&File::new("sql/claim_give.sql", good)).len(), 1);
    assert_eq!(of_file(&File::new("sql/claim_take.sql", "select 1")).len(), 1);
    assert_eq!(of_file(&File::new("sql/claim_take.sql", &format!("{good}select 2"))).len(), 1);
    assert_eq!(of_file(&File::new("sql/claim_take.sql", "-- sqlstreams: claim.take\n")).len(), 1);
    assert_eq!(statements("do $body$ a; b; $body$; select 1;"), 2);
}

#[test]
fn a_name_that_is_not_mirrored_needs_a_reason() {
    let entry = |database, name| OnlyIn { database, name, reason: "it has no partitions" };
    let pair = |one, other| [("postgres", one), ("sqlite", other)];
    let four: &[&str] = &["a", "b", "c", "d"];
    assert!(mirrored(pair(four, four), &[]).is_empty());
    assert_eq!(mirrored(pair(&["a", "b", "c", "d", "e"], four), &[]).len(), 1);
    assert!(mirrored(pair(&["a", "b", "c", "d", "e"], four), &[entry("postgres", "e")]).is_empty());
    assert_eq!(mirrored(pair(four, four), &[entry("postgres", "a")]).len(), 1, "out of date");
    assert!(mirrored(pair(four, &["a", "a_part", "b", "c", "d"]), &[]).is_empty());
    assert_eq!(mirrored(pair(four, &["a", "apart", "b", "c", "d"]), &[]).len(), 1, "not a part");
    assert_eq!(mirrored(pair(four, &["a_part", "b", "c", "d"]), &[]).len(), 2, "a part of nothing");
}

#[test]
fn a_statement_that_nobody_loads_or_runs_is_found() {
    let sql = File::new("sql/claim_take.sql", "");
    let source = |text: &str| File::new("a.rs", text);
    let loaded = source("statements! { S { claim_take } } fn f() { s.claim_take.run() }");
    assert!(unused(&[&sql], &[&loaded]).is_empty());
    assert!(unused(&[&sql], &[&source("const A: &str = include_str!(\"sql/claim_take.sql\");")]).is_empty());
    assert_eq!(unused(&[&sql], &[&source("fn claim_take() {}")]).len(), 1);
    assert_eq!(unused(&[&sql], &[&source("statements! { S { claim_take } } fn claim_take() {}")]).len(), 1);
}
