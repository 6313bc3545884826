//! The only module that uses the TOML library.

use serde::de::DeserializeOwned;

/// Maximum length of an error message, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// The reason why a text is not the expected TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TomlError {
    /// The line in the text, from 1.
    pub line: Option<usize>,
    /// The problem.
    pub message: String,
}

/// Parses a document into a type. TOML has no aliases and the library limits nesting, so the result is never larger
/// than the text.
///
/// # Errors
///
/// If the text is not TOML, repeats a key, or does not fit the type.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, TomlError> {
    ::toml::from_str(text).map_err(|error| TomlError {
        line: error.span().map(|span| line_at(text, span.start)),
        message: error.message().chars().take(MAX_MESSAGE_CHARS).collect(),
    })
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_nesting_is_an_error() {
        let deep = format!("a = {}{}", "[".repeat(20_000), "]".repeat(20_000));
        assert!(parse::<serde::de::IgnoredAny>(&deep).is_err());
    }
}
