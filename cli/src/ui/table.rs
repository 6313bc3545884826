//! Tables: columns are as wide as their widest cell, and the last column is truncated at the edge of the terminal.

use anstyle::Style;

use super::{
    style,
    width::{self, clip},
};
use crate::{
    error::{Error, Result},
    output::{Format, OutputArgs},
    sanitize,
};

/// The separator of two columns.
const GAP: &str = "  ";
/// Minimum width of the last column before other columns are dropped.
const LAST_COLUMN: usize = 24;

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
    /// Headings of the columns that only `--output wide` shows.
    wide: &'static [&'static str],
    /// Headings of the columns that a narrow terminal drops, in the order in which they are dropped.
    optional: &'static [&'static str],
}

impl<const N: usize> Table<N> {
    /// Creates a table with these headings.
    pub(crate) const fn new(headings: [&'static str; N]) -> Self {
        Self {
            headings,
            rows: Vec::new(),
            wide: &[],
            optional: &[],
        }
    }

    /// Sets the columns that only `--output wide` shows.
    #[must_use]
    pub(crate) fn wide(self, wide: &'static [&'static str]) -> Self {
        Self { wide, ..self }
    }

    /// Sets the columns that a narrow terminal drops, in the order in which they are dropped.
    #[must_use]
    pub(crate) fn optional(self, optional: &'static [&'static str]) -> Self {
        Self { optional, ..self }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: [Cell; N]) {
        self.rows.push(cells);
    }

    /// Returns whether the table has no rows.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table with the options of the command line, in at most `columns` columns.
    ///
    /// # Errors
    ///
    /// Fails if `--columns` names an unknown column.
    pub(crate) fn render_with(&self, options: &OutputArgs, columns: usize) -> Result<String> {
        let mut shown: Vec<usize> = if options.columns.is_empty() {
            let is_wide = options.format == Format::Wide;
            let shown = |column: &usize| is_wide || !self.wide.contains(&self.headings[*column]);
            (0..N).filter(shown).collect()
        } else {
            options
                .columns
                .iter()
                .map(|name| self.column(name))
                .collect::<Result<_>>()?
        };
        let may_drop = options.columns.is_empty() && options.format != Format::Wide;
        // Empty columns are left out on a terminal only, because programs that read the table expect the same columns
        // each time.
        if may_drop && columns != usize::MAX {
            shown.retain(|column| self.rows.iter().any(|row| !row[*column].text.is_empty()));
        }
        if may_drop {
            let all = shown.clone();
            shown.retain(|column| !self.optional.contains(&self.headings[*column]));
            // The most important column first. A less important column may fit even if a more important column did not.
            for name in self.optional.iter().rev() {
                let is_wanted = |column: &&usize| shown.contains(column) || self.headings[**column] == *name;
                let wider: Vec<usize> = all.iter().filter(is_wanted).copied().collect();
                if self.width(&wider) <= columns {
                    shown = wider;
                }
            }
        }
        // Lines with columns that the user selected are not truncated; the terminal wraps them.
        let columns = if may_drop { columns } else { usize::MAX };
        Ok(self.render_columns(&shown, !options.no_headers, columns))
    }

    /// Renders the table in at most `columns` columns, without a final line break.
    pub(crate) fn render(&self, columns: usize) -> String {
        self.render_columns(&(0..N).collect::<Vec<_>>(), true, columns)
    }

    fn column(&self, name: &str) -> Result<usize> {
        let wanted = name.trim().replace(['-', '_'], " ");
        let found = self
            .headings
            .iter()
            .position(|heading| heading.eq_ignore_ascii_case(&wanted));
        found.ok_or_else(|| {
            let names = self
                .headings
                .map(|heading| heading.to_ascii_lowercase().replace(' ', "-"));
            Error::usage(format!("unknown column \"{name}\"")).hint(format!("the columns are {}", names.join(", ")))
        })
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        let heading = std::iter::once(self.headings[column]);
        heading.chain(self.rows.iter().map(move |row| row[column].text.as_str()))
    }

    fn column_width(&self, column: usize) -> usize {
        self.cells(column).map(width::of).max().unwrap_or(0)
    }

    /// Returns the minimum width of the table. The last column counts with at most [`LAST_COLUMN`] columns, because it
    /// can be truncated.
    fn width(&self, shown: &[usize]) -> usize {
        let last = shown.len().saturating_sub(1);
        let widths = shown.iter().enumerate().map(|(index, column)| {
            let width = self.column_width(*column);
            if index == last {
                width.min(LAST_COLUMN)
            } else {
                width + GAP.len()
            }
        });
        widths.sum()
    }

    fn render_columns(&self, shown: &[usize], with_headings: bool, columns: usize) -> String {
        let headings = self.headings.map(|heading| Cell::new(style::HEADING, heading));
        let widths: Vec<usize> = shown.iter().map(|column| self.column_width(*column)).collect();
        let lines: Vec<String> = std::iter::once(&headings)
            .filter(|_| with_headings)
            .chain(&self.rows)
            .map(|row| {
                let cells: Vec<&Cell> = shown.iter().map(|column| &row[*column]).collect();
                render_row(&cells, &widths, columns)
            })
            .collect();
        lines.join("\n")
    }
}

fn render_row(row: &[&Cell], widths: &[usize], columns: usize) -> String {
    let mut line = String::new();
    let mut used = 0;
    for (index, (cell, column)) in row.iter().zip(widths).enumerate() {
        let is_last = index + 1 == row.len();
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
    fn columns_are_aligned() {
        assert_eq!(
            plain(&table().render(80)),
            "ID  ROLE      MESSAGE\n1   explorer  found it\n12  演出      evil[2J lines"
        );
    }

    #[test]
    fn last_column_is_truncated_at_the_edge() {
        assert_eq!(
            plain(&table().render(20)),
            "ID  ROLE      MESSA…\n1   explorer  found…\n12  演出      evil[…"
        );
    }

    #[test]
    fn options_select_the_columns() {
        let table = table().wide(&["ID"]).optional(&["ROLE"]);
        let options = |format| OutputArgs::of(format);
        let lines = |options: &OutputArgs, columns| plain(&table.render_with(options, columns).unwrap_or_default());
        assert!(lines(&options(Format::Table), 80).starts_with("ROLE      MESSAGE\n"));
        assert!(lines(&options(Format::Wide), 80).starts_with("ID  ROLE      MESSAGE\n"));
        assert!(lines(&options(Format::Table), 12).starts_with("MESSAGE\n"));
        assert!(lines(&options(Format::Wide), 12).ends_with("evil[2J lines"), "complete");
        let mut sparse = Table::new(["ID", "ROLE", "MESSAGE"]);
        sparse.row([Cell::plain("1"), Cell::plain(""), Cell::plain("found it")]);
        let sparse = |columns| plain(&sparse.render_with(&options(Format::Table), columns).unwrap_or_default());
        assert_eq!(sparse(80), "ID  MESSAGE\n1   found it");
        assert!(sparse(usize::MAX).starts_with("ID  ROLE  MESSAGE"));
        let chosen = OutputArgs {
            columns: vec!["message".to_owned(), "id".to_owned()],
            no_headers: true,
            ..OutputArgs::default()
        };
        assert!(lines(&chosen, 80).starts_with("found it       1\n"));
        let unknown = OutputArgs {
            columns: vec!["age".to_owned()],
            ..OutputArgs::default()
        };
        let error = table.render_with(&unknown, 80).err();
        assert!(error.is_some_and(|error| error.remedy().is_some_and(|hint| hint.contains("id, role, message"))));
    }
}
