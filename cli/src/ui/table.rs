//! Tables: columns are as wide as their widest cell, and the last column is truncated at the edge of the terminal.

use anstyle::Style;

use super::{
    style,
    width::{self, clip},
};
use crate::sanitize;

/// The separator of two columns.
const GAP: &str = "  ";

/// A cell: a text on one line, and its style.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Creates a styled cell. The text is sanitized here, so that all model-written text is safe.
    pub(crate) fn new(style: Style, text: impl AsRef<str>) -> Self {
        Self {
            text: sanitize::line(text.as_ref()),
            style,
        }
    }

    /// Creates a cell without a style.
    pub(crate) fn plain(text: impl AsRef<str>) -> Self {
        Self::new(style::PLAIN, text)
    }
}

/// A table under construction.
#[derive(Clone, Debug)]
pub(crate) struct Table<const N: usize> {
    headings: [&'static str; N],
    rows: Vec<[Cell; N]>,
}

impl<const N: usize> Table<N> {
    /// Creates a table with these headings.
    pub(crate) const fn new(headings: [&'static str; N]) -> Self {
        Self {
            headings,
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: [Cell; N]) {
        self.rows.push(cells);
    }

    /// Renders the table in at most `columns` columns, without a final line break.
    pub(crate) fn render(&self, columns: usize) -> String {
        let headings = self.headings.map(|heading| Cell::new(style::HEADING, heading));
        let widths: [usize; N] = std::array::from_fn(|column| {
            let cells = self.rows.iter().chain(std::iter::once(&headings));
            cells.map(|row| width::of(&row[column].text)).max().unwrap_or(0)
        });
        let lines: Vec<String> = std::iter::once(&headings)
            .chain(&self.rows)
            .map(|row| render_row(row, &widths, columns))
            .collect();
        lines.join("\n")
    }
}

fn render_row<const N: usize>(row: &[Cell; N], widths: &[usize; N], columns: usize) -> String {
    let mut line = String::new();
    let mut used = 0;
    for (index, (cell, column)) in row.iter().zip(widths).enumerate() {
        let is_last = index + 1 == N;
        let room = if is_last { columns.saturating_sub(used) } else { *column };
        let text = clip(&cell.text, room);
        // Trailing spaces would wrap on a narrow terminal.
        let padding = if is_last {
            0
        } else {
            column.saturating_sub(width::of(&text))
        };
        line.push_str(&style::paint(cell.style, &text).to_string());
        if !is_last {
            line.push_str(&" ".repeat(padding));
            line.push_str(GAP);
            used += column + GAP.len();
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::plain;

    fn table() -> Table<3> {
        let mut table = Table::new(["ID", "ROLE", "MESSAGE"]);
        table.row([
            Cell::plain("1"),
            Cell::new(style::NAME, "explorer"),
            Cell::plain("found it"),
        ]);
        table.row([
            Cell::plain("12"),
            Cell::plain("演出"),
            Cell::plain("evil\u{1b}[2J\nlines"),
        ]);
        table
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(
            plain(&table().render(80)),
            "ID  ROLE      MESSAGE\n1   explorer  found it\n12  演出      evil[2J lines"
        );
    }

    #[test]
    fn the_last_column_is_cut_at_the_edge() {
        assert_eq!(
            plain(&table().render(20)),
            "ID  ROLE      MESSA…\n1   explorer  found…\n12  演出      evil[…"
        );
    }
}
