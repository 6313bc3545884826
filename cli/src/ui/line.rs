//! A line of styled pieces that knows its width, so that it can be truncated at the edge of the terminal.

use anstyle::Style;

use super::{
    style,
    width::{self, clip},
};
use crate::sanitize;

/// A line under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pieces: Vec<(Style, String)>,
}

impl Line {
    /// Appends trusted text. Indentation and marks are unchanged.
    #[must_use]
    pub(crate) fn mark(mut self, style: Style, text: impl Into<String>) -> Self {
        self.pieces.push((style, text.into()));
        self
    }

    /// Appends text after a gap. The text is sanitized. A blank text adds no gap.
    #[must_use]
    pub(crate) fn word(mut self, style: Style, text: impl AsRef<str>) -> Self {
        let text = sanitize::line(text.as_ref());
        if !text.is_empty() {
            if !self.pieces.is_empty() {
                self.pieces.push((style::PLAIN, "  ".to_owned()));
            }
            self.pieces.push((style, text));
        }
        self
    }

    /// Renders the line in at most `columns` columns.
    pub(crate) fn render(&self, columns: usize) -> String {
        let mut out = String::new();
        let mut room = columns;
        for (style, text) in &self.pieces {
            let shown = clip(text, room);
            out.push_str(&style::paint(*style, &shown).to_string());
            if shown != *text {
                break;
            }
            room -= width::of(&shown);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::plain;

    #[test]
    fn words_are_separated_and_blanks_skipped() {
        let line = Line::default()
            .mark(style::GOOD, "✓")
            .word(style::NAME, "explorer")
            .word(style::DIM, " \n ")
            .word(style::PLAIN, "found\u{1b}[31m it");
        assert_eq!(plain(&line.render(80)), "✓  explorer  found[31m it");
    }

    #[test]
    fn line_is_truncated_at_the_edge() {
        let line = Line::default().mark(style::PLAIN, "ab").word(style::PLAIN, "cdef");
        assert_eq!(plain(&line.render(8)), "ab  cdef");
        assert_eq!(plain(&line.render(7)), "ab  cd…");
        assert_eq!(plain(&line.render(2)), "ab");
    }
}
