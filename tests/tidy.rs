//! The rules that hold for the repository itself: who may use whom, where SQL and databases may be named,
//! how long things may be. Each rule is a function over texts, tested with bad samples beside it, and one
//! test here that applies it to the tree. A violation is mended in the code, not here.

#[path = "tidy/databases.rs"]
mod databases;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/port.rs"]
mod port;
#[path = "tidy/rust.rs"]
mod rust;
#[path = "tidy/size.rs"]
mod size;
#[path = "tidy/sql.rs"]
mod sql;
#[path = "tidy/tree.rs"]
mod tree;

use databases::Allowed;
use layers::Runtime;
use sql::OnlyIn;
use tree::{File, below, files, sources};

const RUNTIME: &str = "sqlstreams-runtime/src/";
const BACKENDS: [&str; 2] = ["postgres", "sqlite"];

/// Where users hand us their pools and transactions, or get the driver that we use.
const DRIVER_OUTSIDE: &[Allowed] = &[
    Allowed { path: "sqlstreams-runtime/src/database.rs", reason: "ties the driver's types to a backend" },
    Allowed { path: "sqlstreams-runtime/src/client.rs", reason: "users hand us pools here" },
    Allowed { path: "sqlstreams-runtime/src/client/producer.rs", reason: "users hand us transactions here" },
    Allowed { path: "sqlstreams-runtime/src/lib.rs", reason: "re-exports the driver" },
    Allowed { path: "src/lib.rs", reason: "re-exports the driver to users" },
];

const FEATURES_ALLOWED: &[Allowed] = &[
    Allowed { path: "sqlstreams-runtime/src/backend/mod.rs", reason: "chooses the backends that are compiled" },
    Allowed {
        path: "sqlstreams-runtime/src/database.rs",
        reason: "ties the driver's types to a backend, where there is one",
    },
    Allowed { path: "sqlstreams-runtime/src/lib.rs", reason: "re-exports what the features bring" },
    Allowed { path: "src/lib.rs", reason: "re-exports what the features bring" },
];

const NAMES_ALLOWED: &[Allowed] = &[
    Allowed { path: "sqlstreams-runtime/src/database.rs", reason: "ties the driver's types to a backend" },
    Allowed { path: "src/lib.rs", reason: "re-exports" },
];

/// Statements that one database needs and the other doesn't.
const ONLY_IN: &[OnlyIn] = &[
    OnlyIn { database: "postgres", name: "connection_look", reason: "nobody stands before a SQLite file" },
    OnlyIn {
        database: "postgres",
        name: "connection_prepare",
        reason: "SQLite's durability is a pragma of its options",
    },
    OnlyIn { database: "postgres", name: "cursor_observe", reason: "SQLite's writers are serial: no fence" },
    OnlyIn { database: "postgres", name: "cursor_stall", reason: "SQLite's writers are serial: no fence" },
    OnlyIn { database: "postgres", name: "group_gate", reason: "SQLite's transaction begins with the lock" },
    OnlyIn { database: "postgres", name: "migration_lock", reason: "SQLite's transaction begins with the lock" },
    OnlyIn { database: "postgres", name: "migration_schema", reason: "SQLite has no schemas" },
    OnlyIn { database: "postgres", name: "partition_ensure", reason: "SQLite's log has no partitions" },
    OnlyIn { database: "postgres", name: "replay_gate", reason: "SQLite's transaction begins with the lock" },
    OnlyIn { database: "postgres", name: "replay_lane", reason: "SQLite's transaction begins with the lock" },
    OnlyIn { database: "postgres", name: "replay_lock", reason: "SQLite's transaction begins with the lock" },
    OnlyIn { database: "postgres", name: "role_grant", reason: "SQLite has no roles" },
    OnlyIn { database: "postgres", name: "transaction_rollback", reason: "a SQLite connection is closed instead" },
    OnlyIn { database: "postgres", name: "wake_send", reason: "SQLite shows others' writes by data_version" },
    OnlyIn { database: "sqlite", name: "durability_level", reason: "the caller's pragma decides for its transactions" },
    OnlyIn { database: "sqlite", name: "journal_mode", reason: "a property of the file" },
    OnlyIn { database: "sqlite", name: "log_truncate", reason: "the WAL file of several busy writers grows" },
    OnlyIn { database: "sqlite", name: "text_encoding", reason: "payloads are cut apart as UTF-8" },
    OnlyIn { database: "sqlite", name: "wake_heads", reason: "Postgres is told by NOTIFY" },
    OnlyIn { database: "sqlite", name: "wake_version", reason: "Postgres is told by NOTIFY" },
];

#[track_caller]
fn none(problems: Vec<String>) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

fn runtime(files: &[File]) -> Runtime<'_> {
    Runtime::new(
        RUNTIME,
        &below(files, &[RUNTIME], "rs").into_iter().filter(|f| !f.is_test_module()).collect::<Vec<_>>(),
    )
}

fn backend_folder(database: &str, inside: &str) -> String {
    format!("{RUNTIME}backend/{database}/{inside}")
}

#[test]
fn sql_stands_only_in_sql_files() {
    none(sql::in_strings(&sources(&files())));
}

#[test]
fn sql_files_stand_only_in_the_backends() {
    let files = files();
    let homes: Vec<String> =
        BACKENDS.iter().flat_map(|name| [backend_folder(name, "sql/"), backend_folder(name, "migrations/")]).collect();
    let strays = files
        .iter()
        .filter(|file| file.path.ends_with(".sql") && !homes.iter().any(|home| file.path.starts_with(home)));
    none(strays.map(|file| format!("{}: an .sql file outside backend/<db>/", file.path)).collect());
}

#[test]
fn each_sql_file_holds_one_statement_and_begins_with_its_owner() {
    let files = files();
    let folders = BACKENDS.map(|name| backend_folder(name, "sql/"));
    let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    none(below(&files, &folders, "sql").into_iter().flat_map(sql::of_file).collect());
}

#[test]
fn both_databases_have_the_same_statements_or_a_reason() {
    let files = files();
    let names = BACKENDS.map(|name| {
        let folder = backend_folder(name, "sql/");
        below(&files, &[&folder], "sql").into_iter().map(File::stem).collect::<Vec<_>>()
    });
    none(sql::mirrored([(BACKENDS[0], &names[0]), (BACKENDS[1], &names[1])], ONLY_IN));
}

#[test]
fn each_sql_file_is_loaded_and_run() {
    let files = files();
    let mut problems = Vec::new();
    for name in BACKENDS {
        let folder = backend_folder(name, "");
        problems.extend(sql::unused(&below(&files, &[&folder], "sql"), &below(&files, &[&folder], "rs")));
    }
    none(problems);
}

#[test]
fn the_driver_is_used_only_in_backends_and_where_users_hand_us_its_types() {
    none(databases::drivers(&sources(&files()), DRIVER_OUTSIDE));
}

#[test]
fn the_client_knows_pools_and_transactions_and_no_more_of_the_driver() {
    let files = files();
    none(databases::more_than(&["Pool", "Transaction"], &runtime(&files).layer("client")));
}

#[test]
fn database_features_are_asked_for_only_where_backends_are_chosen() {
    none(databases::features(&sources(&files()), FEATURES_ALLOWED));
}

#[test]
fn no_code_outside_a_backend_names_a_database() {
    none(databases::names(&sources(&files()), NAMES_ALLOWED));
}

#[test]
fn no_backend_names_another() {
    let files = files();
    let [postgres, sqlite] = BACKENDS;
    let mut problems = databases::neighbours(&sources(&files), &backend_folder(postgres, ""), sqlite);
    problems.extend(databases::neighbours(&sources(&files), &backend_folder(sqlite, ""), postgres));
    none(problems);
}

#[test]
fn every_exception_for_a_file_is_still_needed() {
    let files = files();
    let sources = sources(&files);
    let mut problems = databases::out_of_date(DRIVER_OUTSIDE, &sources, databases::uses_driver);
    problems
        .extend(databases::out_of_date(FEATURES_ALLOWED, &sources, |file| !databases::feature_lines(file).is_empty()));
    problems.extend(databases::out_of_date(NAMES_ALLOWED, &sources, |file| !databases::named(&file.text).is_empty()));
    none(problems);
}

#[test]
fn no_module_of_the_runtime_uses_a_later_layer() {
    none(runtime(&files()).against_the_layers());
}

#[test]
fn the_vocabulary_waits_for_nothing() {
    let files = files();
    none(layers::words(&runtime(&files).layer("vocabulary"), &["async", "await"], "vocabulary modules are pure"));
}

#[test]
fn backends_open_no_spans() {
    let files = files();
    none(layers::spans(&runtime(&files).layer("backend")));
}

#[test]
fn only_the_store_calls_the_port() {
    let files = files();
    let runtime = runtime(&files);
    let callers = [runtime.layer("preparation"), runtime.layer("work")].concat();
    none(layers::words(&callers, &["Backend"], "the port is called by store alone"));
}

#[test]
fn crates_depend_in_one_direction() {
    let files = files();
    let manifests: Vec<&File> = files
        .iter()
        .filter(|file| file.path == "Cargo.toml" || file.path.starts_with("sqlstreams-") && file.name() == "Cargo.toml")
        .collect();
    assert!(manifests.len() > 4, "the manifests of all crates are read");
    none(manifests.into_iter().flat_map(layers::of_manifest).collect());
}

#[test]
fn declarations_and_generated_code_come_from_crates_without_input_or_output() {
    let files = files();
    let sources = below(&files, &["sqlstreams-schema/src/", "sqlstreams-codegen/src/"], "rs");
    none(layers::input_or_output(&sources));
}

#[test]
fn every_port_method_has_a_conformance_test() {
    let files = files();
    let port = below(&files, &["sqlstreams-runtime/src/backend/mod.rs"], "rs")[0];
    let methods = port::methods(port, "Backend");
    assert!(!methods.is_empty(), "the port is the trait Backend in {}", port.path);
    none(port::untested(&methods, &below(&files, &["sqlstreams-runtime/tests/conformance/"], "rs")));
}

#[test]
fn no_file_has_more_than_600_lines() {
    let files = files();
    none(size::long_files(&files.iter().filter(|file| file.path.ends_with(".rs")).collect::<Vec<_>>(), 600));
}

#[test]
fn no_function_of_the_runtime_has_more_than_80_lines() {
    none(size::long_functions(&below(&files(), &[RUNTIME], "rs"), 80));
}

#[test]
fn few_functions_that_generate_code_have_more_than_80_lines() {
    let files = files();
    let generators = below(&files, &["sqlstreams-codegen/src/", "sqlstreams-derive/src/"], "rs");
    let long = size::long_functions(&generators, 80);
    if long.len() * 100 > size::count_functions(&generators) * 3 {
        none(long);
    }
}

#[test]
fn macro_entries_have_at_most_10_lines() {
    none(size::long_macro_entries(&below(&files(), &["sqlstreams-derive/src/"], "rs"), 10));
}

#[test]
fn library_code_does_not_unwrap() {
    none(size::unwraps(&sources(&files())));
}

#[test]
fn no_test_sleeps() {
    let files = files();
    let is_test =
        |file: &&File| file.path.ends_with(".rs") && (file.path.starts_with("tests/") || file.is_test_module());
    none(size::sleeps(&files.iter().filter(is_test).collect::<Vec<_>>()));
}

#[test]
fn nothing_is_left_to_do() {
    none(size::reminders(&files()));
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    none(size::machine_paths(&files()));
}
