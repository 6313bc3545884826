//! Cutting what programs wrote down to what the supervisor takes.

/// The text on one line of at most `max` characters: control characters are gone, white space is single.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        // No character has more than 4 bytes: what is cut off below need not be copied.
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

/// The beginning of the text, at most `max` bytes of whole characters.
pub(crate) fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
    }
    text
}

/// Drops the beginning of the text until at most `max` bytes of whole characters are left.
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
    fn a_line_has_no_control_characters_and_single_spaces() {
        assert_eq!(one_line("  reading\n\tthe \u{1b}[31mtask ", 80), "reading the [31mtask");
        assert_eq!(one_line("reading the task", 9), "reading…");
        assert_eq!(one_line("abcdefgh", 4), "abc…");
    }

    #[test]
    fn cuts_at_characters() {
        assert_eq!(cut("aé".to_owned(), 2), "a");
        let mut text = "éb".to_owned();
        keep_end(&mut text, 2);
        assert_eq!(text, "b");
    }

    proptest! {
        #[test]
        fn a_line_is_never_longer_than_asked(text in ".{0,64}", max in 1_usize..32) {
            let line = one_line(&text, max);
            prop_assert!(line.chars().count() <= max);
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}
