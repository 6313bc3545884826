//! The page for operators says for each reason of an error what to do about it.

use std::fs;

use troupe_proto::reason::Reason;
use troupe_tests::page::root;

#[test]
fn every_reason_has_one_row_that_says_what_to_do() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let section = page.split("\n## Error reasons\n").nth(1).expect("a section");
    let section = section.split("\n## ").next().unwrap();
    let rows: Vec<_> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .collect();
    let named: Vec<_> = rows.iter().map(|(name, _)| *name).collect();
    // In the order of the reference, each once, and none that does not exist.
    let reasons: Vec<_> = Reason::ALL.iter().copied().map(Reason::as_str).collect();
    assert_eq!(named, reasons);
    for (name, remedy) in rows {
        assert!(remedy.trim_end_matches('|').trim().len() > 10, "{name} has no remedy");
    }
}
