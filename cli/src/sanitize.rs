//! Sanitizes model-written text for a terminal.
//!
//! A message may contain escape sequences that repaint the screen or set the clipboard or the title, and characters
//! that are invisible or change the reading order. All of them are removed. The remaining text is unchanged.

/// Returns the text on one line: each line break or tab becomes a space, and runs of white space become one space.
#[must_use]
pub(crate) fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_whitespace() {
            if !out.is_empty() && !out.ends_with(' ') {
                out.push(' ');
            }
        } else if !is_unsafe(character) {
            out.push(character);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Returns the text with its lines: line feeds are the only control characters that remain, and a tab becomes a space.
#[must_use]
pub(crate) fn block(text: &str) -> String {
    text.chars()
        .filter_map(|character| match character {
            '\n' => Some('\n'),
            '\t' => Some(' '),
            _ if is_unsafe(character) => None,
            _ => Some(character),
        })
        .collect()
}

/// Returns whether a character must not reach a terminal: controls, reading order overrides and invisible characters.
#[must_use]
pub(crate) fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // Soft hyphen, Arabic letter mark, left-to-right and right-to-left marks: they change the displayed text.
            '\u{ad}' | '\u{61c}' | '\u{200e}' | '\u{200f}'
            // Zero-width space; the joiners after it are part of scripts and emoji and stay.
            | '\u{200b}'
            // Line and paragraph separator.
            | '\u{2028}' | '\u{2029}'
            // Embeddings and overrides, invisible operators, isolates.
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            // Byte order mark, interlinear annotations.
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // Tags, which can carry a hidden message.
            | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_removed() {
        assert_eq!(line("\u{1b}[2J\u{1b}]0;owned\u{7}hello"), "[2J]0;ownedhello");
        assert_eq!(line("a\u{9b}31mb"), "a31mb", "the one-byte CSI of C1");
        assert_eq!(line("rub\u{8}\u{7f}out"), "rubout");
    }

    #[test]
    fn reading_order_overrides_are_removed() {
        assert_eq!(line("safe\u{202e}gpj.exe"), "safegpj.exe");
        assert_eq!(line("\u{2066}a\u{2069}\u{200f}b\u{61c}"), "ab");
    }

    #[test]
    fn invisible_characters_are_removed() {
        assert_eq!(line("a\u{200b}b\u{feff}\u{e0041}\u{e0042}"), "ab");
        let family = "👩\u{200d}👩\u{200d}👧 नमस्ते";
        assert_eq!(line(family), family);
    }

    #[test]
    fn text_becomes_one_line() {
        assert_eq!(line("  one\r\n\ttwo\u{2028}three  \n"), "one two three");
        assert_eq!(line("\n"), "");
    }

    #[test]
    fn block_keeps_line_breaks() {
        assert_eq!(block("one\r\n\ttwo\u{1b}[31m\n"), "one\n two[31m\n");
    }
}
