//! Encoding requirements for templates and footers.

/// Maximum size of a template or footer, in bytes.
pub const MAX_BYTES: usize = 1024 * 1024;

/// The reason why a file's bytes are rejected, worded for the file's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotText {
    /// The text is too large.
    #[error("the file is larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// The bytes are not UTF-8.
    #[error("not valid UTF-8 (byte {0})")]
    NotUtf8(usize),
    /// The text contains a NUL.
    #[error("has a NUL byte (byte {0})")]
    Nul(usize),
}

/// Decodes bytes as text.
///
/// # Errors
///
/// If the bytes are not valid text, or exceed [`MAX_BYTES`].
pub fn decode(bytes: &[u8]) -> Result<&str, NotText> {
    if bytes.len() > MAX_BYTES {
        return Err(NotText::TooLarge);
    }
    if let Some(position) = bytes.iter().position(|byte| *byte == 0) {
        return Err(NotText::Nul(position));
    }
    std::str::from_utf8(bytes).map_err(|error| NotText::NotUtf8(error.valid_up_to()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_bytes_are_rejected() {
        let largest = vec![b'x'; MAX_BYTES];
        assert_eq!(decode(&largest).unwrap().len(), MAX_BYTES);
        let larger = vec![b'x'; MAX_BYTES + 1];
        for (bytes, why) in [
            (larger.as_slice(), "the file is larger than 1048576 bytes"),
            (b"ab\xff", "not valid UTF-8 (byte 2)"),
            (b"ab\0\xff", "has a NUL byte (byte 2)"),
        ] {
            assert_eq!(decode(bytes).unwrap_err().to_string(), why);
        }
    }
}
