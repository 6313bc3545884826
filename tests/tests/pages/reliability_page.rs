//! The page about reliability lists the faults of the fault suite, and the tests that it names exist.

use std::{collections::BTreeSet, fmt::Write as _, fs};

use troupe_tests::page::{check, has_test, root};

const PAGE: &str = "docs/reliability.md";
const TABLE: &str = "tests/faults/table.tsv";
/// The value of the fourth column if all tests of a file belong to the row.
const ALL: &str = "*";

/// The text before and after the table on the page.
const BEGIN: &str = "<!-- begin of tests/faults/table.tsv -->\n\n";
const END: &str = "\n<!-- end of tests/faults/table.tsv -->\n";

/// A promise for a fault, and the test that shows it.
struct Row {
    fault: String,
    promised: String,
    file: String,
    test: String,
}

fn rows() -> Vec<Row> {
    let table = fs::read_to_string(root().join(TABLE)).unwrap();
    let (head, lines) = table.split_once('\n').unwrap();
    assert_eq!(head, "fault\tpromised\tfile\ttest");
    lines
        .lines()
        .map(|line| {
            let cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
            let four: Result<[String; 4], Vec<String>> = cells.try_into();
            let [fault, promised, file, test] = four.unwrap_or_else(|_| panic!("not four columns: {line}"));
            Row {
                fault,
                promised,
                file,
                test,
            }
        })
        .collect()
}

/// Returns the table of the page. Only the first row of a fault names it.
fn render(rows: &[Row]) -> String {
    let mut table = String::from("| fault | promised | shown by |\n|---|---|---|\n");
    let mut before = "";
    for row in rows {
        let fault: &str = if row.fault == before { "" } else { &row.fault };
        let test: &str = if row.test == ALL {
            row.file.rsplit('/').next().unwrap_or_default()
        } else {
            &row.test
        };
        writeln!(table, "| {fault} | {} | [`{test}`](../{}) |", row.promised, row.file).unwrap();
        before = &row.fault;
    }
    table
}

#[test]
fn reliability_page_contains_fault_table() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let (before, rest) = page
        .split_once(BEGIN)
        .expect("the page marks the beginning of the table");
    let (_, after) = rest.split_once(END).expect("the page marks the end of the table");
    let expected = format!("{before}{BEGIN}{}{END}{after}", render(&rows()));
    check(PAGE, &expected);
}

#[test]
fn fault_table_rows_name_distinct_tests() {
    let mut named = BTreeSet::new();
    for row in rows() {
        let (file, test) = (&row.file, &row.test);
        let code = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let is_there = test == ALL || has_test(&code, test);
        assert!(is_there, "{file} has no test {test}");
        assert!(named.insert(format!("{file} {test}")), "twice: {file} {test}");
    }
}
