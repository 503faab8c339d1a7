//! Who may use whom: the crates, and the modules inside the runtime.

use std::collections::HashMap;

use super::rust::{self, Token, UsedPath, paths_from, read_path, stands};
use super::tree::File;

/// What a crate may depend on: `(name, ours, others that it must not have)`.
pub const CRATES: &[(&str, &[&str], &[&str])] = &[
    ("sqlstreams-schema", &[], &["syn", "sqlx", "tokio", "proc-macro2", "quote"]),
    ("sqlstreams-codegen", &["sqlstreams-schema"], &["toml", "sqlx", "tokio"]),
    ("sqlstreams-derive", &["sqlstreams-schema", "sqlstreams-codegen"], &["toml", "sqlx", "tokio"]),
    ("sqlstreams-build", &["sqlstreams-schema", "sqlstreams-codegen"], &["sqlx", "tokio"]),
    ("sqlstreams-runtime", &["sqlstreams-schema"], &["syn", "quote", "toml"]),
    ("sqlstreams", &["sqlstreams-runtime", "sqlstreams-derive"], &["sqlx", "tokio"]),
    ("sqlstreams-cli", &["sqlstreams-build", "sqlstreams-runtime"], &["sqlx"]),
];

/// The runtime's modules, from left to right, as its `lib.rs` describes them; a module may use its own layer
/// and those before it.
pub const LAYERS: &[(&str, &[&str])] = &[
    ("vocabulary", &["identity", "time", "message", "group", "delivery", "outcome", "error", "migrate", "role"]),
    ("backend", &["backend"]),
    ("store", &["store", "database"]),
    ("preparation", &["hub", "register"]),
    ("work", &["produce", "consume", "worker"]),
    ("client", &["dead_letters", "replay", "client"]),
];

/// Problems of a manifest: dependencies against the direction, ours or others'. Those of tests are free.
pub fn of_manifest(manifest: &File) -> Vec<String> {
    let (name, dependencies) = dependencies(&manifest.text);
    let Some((_, ours, never)) = CRATES.iter().find(|(known, _, _)| *known == name) else {
        return vec![format!("{}: crate {name:?} has no place in CRATES of tests/tidy/layers.rs", manifest.path)];
    };
    let wrong = dependencies.iter().filter(|dependency| {
        let dependency = dependency.as_str();
        never.contains(&dependency) || dependency.starts_with("sqlstreams") && !ours.contains(&dependency)
    });
    wrong.map(|dependency| format!("{}: {name} must not depend on {dependency}", manifest.path)).collect()
}

/// A package's name and its dependencies, those for tests aside.
fn dependencies(manifest: &str) -> (String, Vec<String>) {
    let (mut name, mut found, mut section) = (String::new(), Vec::new(), String::new());
    for line in manifest.lines().map(str::trim) {
        if let Some(heading) = line.strip_prefix('[') {
            section = heading.trim_end_matches(']').to_owned();
            let single = section.rsplit_once("dependencies.").filter(|(before, _)| !before.contains("dev-"));
            found.extend(single.filter(|(before, _)| !before.contains("workspace")).map(|(_, name)| name.to_owned()));
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else { continue };
        let key = key.trim().split('.').next().unwrap_or_default().trim_matches('"');
        if section == "package" && key == "name" {
            name = value.trim().trim_matches('"').to_owned();
        }
        let counts = section == "dependencies"
            || section == "build-dependencies"
            || section.starts_with("target.") && !section.contains("dev-") && section.ends_with("dependencies");
        if counts {
            found.push(key.to_owned());
        }
    }
    (name, found)
}

/// Problems of crates that must stay pure: no files, processes, network or environment.
pub fn input_or_output(sources: &[&File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources {
        let paths = paths_from(&rust::code(&file.text), "std");
        for path in paths.iter().filter(|path| {
            path.parts.get(1).is_some_and(|part| ["fs", "io", "net", "process", "env", "thread"].contains(&&**part))
        }) {
            problems.push(format!(
                "{}:{}: {} in a crate that does no I/O",
                file.path,
                path.line,
                path.parts.join("::")
            ));
        }
    }
    problems
}

/// The runtime's modules, relative to `src/`.
pub struct Runtime<'a> {
    files: Vec<(Vec<String>, &'a File)>,
    /// Names that `lib.rs` re-exports, with the module that they come from.
    exported: HashMap<String, String>,
}

impl<'a> Runtime<'a> {
    /// From the files below `root`, the runtime's `src/`.
    pub fn new(root: &str, sources: &[&'a File]) -> Self {
        let mut files = Vec::new();
        let mut exported = HashMap::new();
        for file in sources {
            let Some(relative) = file.path.strip_prefix(root) else { continue };
            let module = relative.trim_end_matches(".rs").trim_end_matches("/mod");
            if module == "lib" {
                exported = exports(&rust::code(&file.text));
            } else {
                files.push((module.split('/').map(str::to_owned).collect(), *file));
            }
        }
        Self { files, exported }
    }

    /// Modules that stand in no layer, and paths that lead from one layer into a later one.
    pub fn against_the_layers(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (module, file) in &self.files {
            let Some((here, layer)) = rank(&module[0]) else {
                problems
                    .push(format!("{}: module {} stands in no layer of tests/tidy/layers.rs", file.path, module[0]));
                continue;
            };
            for (target, line) in self.used_modules(module, &rust::code(&file.text)) {
                if let Some((there, other)) = rank(&target).filter(|(there, _)| *there > here) {
                    problems.push(format!(
                        "{}:{line}: {layer} must not use {target}, which is {other} (layer {here} and {there})",
                        file.path
                    ));
                }
            }
        }
        problems
    }

    /// The top-level modules that a module's code names, by `crate::` or `super::`.
    fn used_modules(&self, module: &[String], code: &[Token]) -> Vec<(String, usize)> {
        let from_root = paths_from(code, "crate").into_iter().map(|path| (path.parts[1..].to_vec(), path.line));
        let from_above = paths_from(code, "super").into_iter().map(|UsedPath { parts, line }| {
            let ups = parts.iter().take_while(|part| *part == "super").count();
            let above = &module[..module.len().saturating_sub(ups)];
            (above.iter().chain(&parts[ups..]).cloned().collect(), line)
        });
        let named = from_root.chain(from_above).filter_map(|(path, line): (Vec<String>, usize)| {
            let first = path.first()?;
            Some((self.exported.get(first).unwrap_or(first).clone(), line))
        });
        named.collect()
    }

    /// The sources of one layer's modules.
    pub fn layer(&self, name: &str) -> Vec<&'a File> {
        let of_layer = |module: &str| rank(module).is_some_and(|(_, layer)| layer == name);
        self.files.iter().filter(|(module, _)| of_layer(&module[0])).map(|(_, file)| *file).collect()
    }
}

fn rank(module: &str) -> Option<(usize, &'static str)> {
    LAYERS.iter().position(|(_, modules)| modules.contains(&module)).map(|at| (at, LAYERS[at].0))
}

fn exports(code: &[Token]) -> HashMap<String, String> {
    let mut found = HashMap::new();
    for at in (0..code.len()).filter(|at| stands(code, *at, &["use"])) {
        let mut paths = Vec::new();
        read_path(code, at + 1, Vec::new(), &mut paths);
        for path in paths {
            let parts: Vec<&String> = path.parts.iter().filter(|part| *part != "crate" && *part != "self").collect();
            if let [module, .., name] = parts[..] {
                found.insert(name.clone(), module.clone());
            }
        }
    }
    found
}

/// Problems of sources that use one of these words in their code.
pub fn words(files: &[&File], never: &[&str], reason: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        for token in rust::code(&file.text).iter().filter(|token| token.is_word() && never.contains(&&*token.text)) {
            problems.push(format!("{}:{}: {}: {reason}", file.path, token.line, token.text));
        }
    }
    problems
}

/// Problems of sources that open a tracing span.
pub fn spans(files: &[&File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        let tokens = rust::code(&file.text);
        for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.is_word()) {
            let opens = (token.is("span") || token.text.ends_with("_span")) && stands(&tokens, at + 1, &["!"]);
            if opens || token.is("instrument") {
                problems.push(format!("{}:{}: {}: spans are opened once, in store", file.path, token.line, token.text));
            }
        }
    }
    problems
}

#[test]
fn a_crate_that_depends_against_the_direction_is_found() {
    let manifest = |text: &str| File::new("x/Cargo.toml", text);
    let good = "[package]\nname = \"sqlstreams-codegen\"\n[dependencies]\nsqlstreams-schema.workspace = true\nsyn = \"3\"\n\
        [dev-dependencies]\ntokio = \"1\"\n";
    assert!(of_manifest(&manifest(good)).is_empty());
    for bad in ["sqlstreams-runtime.workspace = true", "sqlx = { version = \"0.9\" }"] {
        assert_eq!(of_manifest(&manifest(&good.replace("syn = \"3\"", bad))).len(), 1, "{bad}");
        assert_eq!(of_manifest(&manifest(&format!("{good}[build-dependencies]\n{bad}\n"))).len(), 1, "{bad}");
    }
    assert_eq!(of_manifest(&manifest(&format!("{good}[dependencies.toml]\nversion = \"1\"\n"))).len(), 1);
    assert_eq!(of_manifest(&manifest("[package]\nname = \"sqlstreams-extra\"\n")).len(), 1);
}

#[test]
fn input_or_output_in_a_pure_crate_is_found() {
    let check = |text: &str| input_or_output(&[&File::new("a.rs", text)]).len();
    assert_eq!(check("use std::{fmt, collections::HashMap};"), 0);
    assert_eq!(check("use std::{fmt, fs::File};"), 1);
    assert_eq!(check("fn f() { std::env::var(\"A\"); }"), 1);
}

#[test]
fn a_module_that_uses_a_later_layer_is_found() {
    let check = |path: &str, text: &str| {
        let files = [File::new("src/lib.rs", "pub use client::{Client, x as Y};"), File::new(path, text)];
        Runtime::new("src/", &files.iter().collect::<Vec<_>>()).against_the_layers().len()
    };
    assert_eq!(check("src/store.rs", "use crate::{error::Error, backend::Backend}; use crate::database::Database;"), 0);
    assert_eq!(check("src/store.rs", "use crate::{error::Error, client::Client};"), 1);
    assert_eq!(check("src/store.rs", "fn f() { crate::produce::run() }"), 1);
    assert_eq!(check("src/store.rs", "use crate::Client;"), 1, "by the name that the crate's root exports");
    assert_eq!(check("src/error.rs", "use super::store::Store;"), 1);
    assert_eq!(check("src/backend/postgres/claim.rs", "use super::super::super::client::Client; use super::error;"), 1);
    assert_eq!(check("src/backend/mod.rs", "pub mod postgres; use crate::message::Message;"), 0);
    assert_eq!(check("src/helper.rs", ""), 1, "a module without a layer");
    assert_eq!(check("src/error.rs", "#[cfg(test)] mod tests { use crate::client::Client; }"), 0);
}

#[test]
fn a_forbidden_word_is_found_in_code_only() {
    let check = |text: &str| words(&[&File::new("a.rs", text)], &["async"], "pure").len();
    assert_eq!(check("async fn f() {}"), 1);
    assert_eq!(check("// async\nconst A: &str = \"async\";"), 0);
}

#[test]
fn a_span_is_found() {
    let check = |text: &str| spans(&[&File::new("a.rs", text)]).len();
    assert_eq!(check("fn f() { let _a = tracing::info_span!(\"claim.take\"); }"), 1);
    assert_eq!(check("#[tracing::instrument] fn f() {}"), 1);
    assert_eq!(check("fn f(span: (u8, u8)) { tracing::warn!(span = 1); }"), 0);
}
