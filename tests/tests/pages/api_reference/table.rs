//! Tables of Markdown.

use std::fmt::Write as _;

/// Returns a table with these columns.
pub fn table<const N: usize>(columns: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut text = format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(N));
    for row in rows {
        // A vertical bar ends a cell, even in code.
        let cells = row.map(|cell| cell.replace('|', "\\|"));
        writeln!(text, "| {} |", cells.join(" | ")).unwrap();
    }
    text
}
