//! References to content that is stored separately from the events.

use crate::ids::Digest;

/// Maximum length of a preview, in characters.
pub const PREVIEW_CHARS: usize = 160;

/// Maximum size of a message that is stored in an event, in bytes. Longer messages are stored as content.
pub const MAX_EVENT_MESSAGE_BYTES: usize = 4 * 1024;

/// Content, identified by its digest. The bytes are stored with the session, in the transaction of the event that
/// refers to them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentRef {
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// The size in bytes.
    pub size: u64,
    /// The beginning of a text, as one line of at most [`PREVIEW_CHARS`] characters. Empty for other content.
    pub preview: String,
}

/// Returns the beginning of a text as one line without control characters, at most [`PREVIEW_CHARS`] characters.
#[must_use]
pub fn preview(text: &str) -> String {
    let mut words = String::new();
    let mut chars = 0;
    for word in text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|w| !w.is_empty())
    {
        if chars > 0 {
            words.push(' ');
            chars += 1;
        }
        for c in word.chars() {
            if chars >= PREVIEW_CHARS - 1 {
                words.push('…');
                return words;
            }
            words.push(c);
            chars += 1;
        }
    }
    words
}

/// Truncates a text to at most `max` bytes at a character boundary.
#[must_use]
pub fn truncate(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
