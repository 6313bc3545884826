//! Generated pages of the documentation: a test compares each page with the generated text. If [`WRITE`] is set, the
//! test writes the page first.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Environment variable that makes the tests write pages instead of only comparing them.
pub const WRITE: &str = "TROUPE_WRITE_DOCS";

/// Returns the root directory of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns every Rust file below a directory.
///
/// # Panics
///
/// If the directory cannot be read.
#[must_use]
pub fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns whether pages are written.
#[must_use]
pub fn is_written_now() -> bool {
    env::var_os(WRITE).is_some()
}

/// Checks that a page equals `expected`. Writes the page first if [`WRITE`] is set. `page` is relative to the
/// repository's root.
///
/// # Panics
///
/// If the page differs.
pub fn check(page: &str, expected: &str) {
    let path = root().join(page);
    if is_written_now() {
        fs::write(&path, expected).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == expected,
        "{page} differs from the code; write it with `{WRITE}=1 cargo test -p troupe-tests --test pages`:\n{expected}"
    );
}

/// Returns whether the text of a file contains a test with this name: a function with a test attribute.
#[must_use]
pub fn has_test(text: &str, name: &str) -> bool {
    let function = format!("fn {name}(");
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.contains(&function) {
            return is_test;
        }
        let is_attribute = line.starts_with("#[");
        is_test = is_attribute && (is_test || line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
    }
    false
}
