//! The threat model page names a test for each mitigated threat. Those tests exist.

use std::fs;

use troupe_tests::page::{check, has_test, root};

/// Minimum number of named tests. Fewer tests mean that the page has lost its tables or that their form has changed.
const FEWEST: usize = 50;

/// Returns the tests that the page names: `path/to/file.rs::function` between backticks.
fn named(page: &str) -> Vec<(&str, &str)> {
    page.split('`')
        .filter_map(|span| span.split_once("::"))
        .filter(|(path, _)| path.ends_with(".rs"))
        .collect()
}

#[test]
fn tests_named_on_security_page_exist() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let named = named(&page);
    assert!(named.len() >= FEWEST, "only {} tests are named", named.len());
    let missing: Vec<String> = named
        .iter()
        .filter(|(path, name)| {
            let text = fs::read_to_string(root().join(path)).unwrap_or_default();
            !has_test(&text, name)
        })
        .map(|(path, name)| format!("{path}::{name}"))
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}

/// The markers around the generated table.
const TABLE_BEGIN: &str = "<!-- confinement: generated -->\n";
const TABLE_END: &str = "<!-- confinement: end -->\n";

#[test]
fn confinement_table_matches_code() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let (before, rest) = page.split_once(TABLE_BEGIN).unwrap();
    let (_, after) = rest.split_once(TABLE_END).unwrap();
    let table = troupe_runner::confinement_table();
    let expected = format!("{before}{TABLE_BEGIN}{table}{TABLE_END}{after}");
    check("docs/security.md", &expected);
}

#[test]
fn function_with_test_attribute_is_a_test() {
    let text = "#[test]\nfn one() {}\n\nfn helper() {}\n#[tokio::test(flavor = \"x\")]\nasync fn other() {}\n";
    for (name, expected) in [("one", true), ("other", true), ("helper", false), ("none", false)] {
        assert_eq!(has_test(text, name), expected, "{name}");
    }
}
