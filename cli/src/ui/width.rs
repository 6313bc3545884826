//! The width of a text on a terminal, and truncation to a width.

use terminal_size::{Height, Width};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns the number of columns of the terminal on standard output. Without a terminal, lines are never truncated.
pub(crate) fn columns() -> usize {
    terminal_size::terminal_size_of(std::io::stdout())
        .map_or(usize::MAX, |(Width(columns), _)| usize::from(columns).max(20))
}

/// Returns the number of rows of the terminal.
pub(crate) fn rows() -> usize {
    terminal_size::terminal_size().map_or(usize::MAX, |(_, Height(rows))| usize::from(rows).max(4))
}

/// Returns the number of columns of a text without styles.
pub(crate) fn of(text: &str) -> usize {
    text.width()
}

/// Truncates a text without styles to at most `columns` columns, with an ellipsis if it is too long.
pub(crate) fn clip(text: &str, columns: usize) -> String {
    if of(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    let mut end_of_word = None;
    for character in text.chars() {
        let width = character.width().unwrap_or(0);
        // One column is reserved for the ellipsis.
        if used + width + 1 > columns {
            break;
        }
        if character == ' ' {
            end_of_word = Some(out.len());
        }
        out.push(character);
        used += width;
    }
    // Words are not broken unless the last word is longer than half of the room.
    if let Some(end) = end_of_word.filter(|end| out.len() - end <= columns / 2) {
        out.truncate(end);
    }
    if columns > 0 {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_is_not_truncated() {
        assert_eq!(clip("worker", 6), "worker");
        assert_eq!(clip("", 0), "");
    }

    #[test]
    fn long_text_ends_with_ellipsis() {
        assert_eq!(clip("orchestrator", 6), "orche…");
        assert_eq!(clip("orchestrator", 0), "");
    }

    #[test]
    fn wide_character_takes_two_columns() {
        assert_eq!(of("演出"), 4);
        assert_eq!(clip("演出家", 5), "演出…");
        assert_eq!(clip("演出家", 4), "演…");
    }
}
