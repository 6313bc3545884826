//! The page for operators contains a remedy for each error reason.

use std::fs;

use troupe_proto::reason::Reason;
use troupe_tests::page::root;

#[test]
fn every_reason_has_one_row_with_a_remedy() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let section = page.split("\n## Error reasons\n").nth(1).expect("a section");
    let section = section.split("\n## ").next().unwrap();
    let rows: Vec<_> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .collect();
    let named: Vec<_> = rows.iter().map(|(name, _)| *name).collect();
    // The rows have the order of the reference, each reason occurs once, and all exist.
    let reasons: Vec<_> = Reason::ALL.iter().copied().map(Reason::as_str).collect();
    assert_eq!(named, reasons);
    for (name, remedy) in rows {
        assert!(remedy.trim_end_matches('|').trim().len() > 10, "{name} has no remedy");
    }
}
