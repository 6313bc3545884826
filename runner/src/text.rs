//! Truncates and cleans texts of programs to the supervisor's limits.

/// Returns the text without escape sequences and control characters, except for line ends and tabs.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            '\n' | '\t' => clean.push(next),
            '\u{1b}' => match rest.next() {
                // A control sequence ends with a letter or one of a few symbols.
                Some('[') => while rest.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                // An operating system command ends with BEL or with another escape.
                Some(']') => {
                    while rest.next_if(|c| !matches!(c, '\u{7}' | '\u{1b}')).is_some() {}
                    if rest.next() == Some('\u{1b}') {
                        rest.next();
                    }
                }
                _ => {}
            },
            other if other.is_control() => {}
            other => clean.push(other),
        }
    }
    clean
}

/// Returns the text in one line of at most `max` characters, without control characters and with single spaces.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    // A character has at most 4 bytes. The factor leaves room for escape sequences.
    let text = clean(start(text, 64 * max));
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        // A character has at most 4 bytes, so the rest would be truncated below.
        if line.len() > 4 * max {
            break;
        }
    }
    if line.chars().count() <= max {
        return line;
    }
    let mut start: String = line.chars().take(max.saturating_sub(1)).collect();
    start.truncate(start.trim_end().len());
    start.push('…');
    start
}

/// Returns bytes in a form for URLs. All bytes except ASCII letters, digits and those in `kept` are percent-encoded.
pub(crate) fn percent_encoded(bytes: &[u8], kept: &[u8]) -> String {
    let mut encoded = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Returns the beginning of the text, at most `max` bytes of whole characters.
pub(crate) fn start(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max.min(text.len()))]
}

/// Truncates the text to at most `max` bytes of whole characters.
pub(crate) fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
    }
    text
}

/// Removes the beginning of the text so that at most `max` bytes of whole characters are left.
pub(crate) fn keep_end(text: &mut String, max: usize) {
    if text.len() > max {
        let from = text.ceil_char_boundary(text.len() - max);
        text.drain(..from);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn line_has_no_control_characters_or_double_spaces() {
        assert_eq!(one_line("  reading\n\tthe \u{1b}[31mtask ", 80), "reading the task");
        assert_eq!(one_line("reading the task", 9), "reading…");
        assert_eq!(one_line("abcdefgh", 4), "abc…");
    }

    #[test]
    fn escape_sequences_are_removed_completely() {
        for (text, expected) in [
            ("a\u{1b}[1;31mred\u{1b}[0m b", "ared b"),
            ("\u{1b}]0;title\u{7}x\u{1b}]8;;url\u{1b}\\y", "xy"),
            ("one\r\n\ttwo\u{7}\u{0}", "one\n\ttwo"),
            ("end\u{1b}", "end"),
            ("end\u{1b}[3", "end"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
        }
    }

    #[test]
    fn text_is_cut_at_character_boundary() {
        assert_eq!(cut("aé".to_owned(), 2), "a");
        let mut text = "éb".to_owned();
        keep_end(&mut text, 2);
        assert_eq!(text, "b");
    }

    proptest! {
        #[test]
        fn line_is_at_most_the_requested_length(text in ".{0,64}", max in 1_usize..32) {
            let line = one_line(&text, max);
            prop_assert!(line.chars().count() <= max);
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}
