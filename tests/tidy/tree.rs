//! The files that the checks read.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// Relative to the repository, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The file's name without its folder.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The file's name without folder and extension.
    pub fn stem(&self) -> &str {
        self.name().split('.').next().unwrap_or_default()
    }

    /// A module that only tests compile: `tests.rs` beside the code.
    pub fn is_test_module(&self) -> bool {
        self.name() == "tests.rs" || self.path.contains("/tests/")
    }
}

/// Every text file of the repository, in the order of the paths.
pub fn files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The files below a folder (or a file itself) with one of the extensions. A folder without any fails the
/// test, since a check that reads nothing would always pass.
pub fn below<'a>(files: &'a [File], places: &[&str], extension: &str) -> Vec<&'a File> {
    let mut found = Vec::new();
    for place in places {
        let before = found.len();
        found.extend(
            files.iter().filter(|file| file.path.starts_with(place) && file.path.ends_with(&format!(".{extension}"))),
        );
        assert!(found.len() > before, "the checks expect .{extension} files in {place}, and none are there");
    }
    found
}

/// The Rust sources of all crates, without tests, examples and benches.
pub fn sources(files: &[File]) -> Vec<&File> {
    let found = files.iter().filter(|file| {
        let inside = file.path.split_once("/src/").map_or(&*file.path, |(folder, _)| folder);
        file.path.ends_with(".rs")
            && (file.path.starts_with("src/") || inside.starts_with("sqlstreams-"))
            && file.path.contains("src/")
            && !file.is_test_module()
    });
    found.collect()
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<File>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|err| panic!("{}: {err}", folder.display()));
    for entry in entries.map_while(Result::ok) {
        let path: PathBuf = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if name != "target" && name != ".git" && name != "wip" {
                walk(root, &path, found);
            }
        // In a worktree `.git` is a file.
        } else if name == ".git" {
            continue;
        } else if let Ok(text) = fs::read_to_string(&path) {
            let relative = path.strip_prefix(root).expect("a file lies below its root");
            let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
            found.push(File { path: parts.join("/"), text });
        }
    }
}
