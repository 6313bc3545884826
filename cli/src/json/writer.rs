//! JSON on one line that is safe to display: control characters and characters that hide text are written as `\uXXXX`.
//! The escaping is lossless: a JSON parser restores the model's original text.

use std::io;

use serde::Serialize as _;
use serde_json::{Serializer, Value, ser::Formatter};

use crate::{
    error::{Error, Result},
    sanitize,
};

/// Serializes the value on one line.
pub(crate) fn to_line(value: &Value) -> Result<String> {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Safe);
    value
        .serialize(&mut serializer)
        .map_err(|error| Error::failure(format!("cannot write JSON: {error}")))?;
    String::from_utf8(bytes).map_err(|error| Error::failure(format!("cannot write JSON: {error}")))
}

/// A compact formatter that escapes all unsafe characters. serde_json itself escapes C0 controls, quotes and
/// backslashes.
struct Safe;

impl Formatter for Safe {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let mut rest = fragment;
        while let Some((at, character)) = rest
            .char_indices()
            .find(|(_, character)| sanitize::is_unsafe(*character))
        {
            let (plain, unsafe_on) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = unsafe_on.get(character.len_utf8()..).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unsafe_characters_are_escaped_losslessly() {
        let value = json!({"text": "a\u{1b}[2J\u{9b}b\u{202e}c\u{e0041}\u{7f}\n\"é"});
        let line = to_line(&value).unwrap();
        assert!(line.chars().all(|character| !sanitize::is_unsafe(character)), "{line}");
        assert!(
            line.contains("\\u202e") && line.contains("\\udb40\\udc41") && line.contains('é'),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }
}
