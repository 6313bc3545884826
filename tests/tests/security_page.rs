//! The page of the threat model names a test for each thing that it says is stopped. They are there.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{fs, path::Path};

/// Below this the page has lost its tables, or is written in a form that is not read here.
const FEWEST: usize = 50;

/// The tests that the page names: `path/to/file.rs::function` between backticks.
fn named(page: &str) -> Vec<(&str, &str)> {
    page.split('`')
        .filter_map(|span| span.split_once("::"))
        .filter(|(path, _)| path.ends_with(".rs"))
        .collect()
}

/// Whether a file has a test of that name: a function with the attribute of one.
fn has_test(text: &str, name: &str) -> bool {
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

#[test]
fn every_test_that_the_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/security.md")).unwrap();
    let named = named(&page);
    assert!(named.len() >= FEWEST, "only {} tests are named", named.len());
    let missing: Vec<String> = named
        .iter()
        .filter(|(path, name)| {
            let text = fs::read_to_string(root.join(path)).unwrap_or_default();
            !has_test(&text, name)
        })
        .map(|(path, name)| format!("{path}::{name}"))
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_function_is_a_test_by_its_attribute() {
    let text = "#[test]\nfn one() {}\n\nfn helper() {}\n#[tokio::test(flavor = \"x\")]\nasync fn other() {}\n";
    for (name, expected) in [("one", true), ("other", true), ("helper", false), ("none", false)] {
        assert_eq!(has_test(text, name), expected, "{name}");
    }
}
