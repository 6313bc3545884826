//! SHA-256 digests: of files, of prompt blocks, and of structured values.

use std::{fmt, sync::Arc};

use base16ct::lower;
use sha2::{Digest as _, Sha256};

/// A SHA-256, as 64 lower-case hexadecimal digits. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(Arc<str>);

impl Digest {
    /// Returns the digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_sha(&Sha256::digest(bytes))
    }

    /// Parses a digest. Returns `None` if the text is not a digest. Upper-case digits are accepted.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// Returns the 64 digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn from_sha(sha: &[u8]) -> Self {
        Self(lower::encode_string(sha).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Digests a structured value field by field. Every text is preceded by its length, so no two values share an encoding:
/// moving a letter from one field to the next changes the digest.
#[derive(Clone, Debug, Default)]
pub struct DigestBuilder(Sha256);

impl DigestBuilder {
    /// Creates an empty digest.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one named text.
    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.raw(name);
        self.raw(value);
        self
    }

    /// Adds a named list of texts, in its order.
    pub fn list<'a>(&mut self, name: &str, values: impl IntoIterator<Item = &'a str>) -> &mut Self {
        let values: Vec<&str> = values.into_iter().collect();
        self.raw(name);
        self.length(values.len());
        for value in values {
            self.raw(value);
        }
        self
    }

    /// Returns the digest of everything added so far.
    #[must_use]
    pub fn finish(&self) -> Digest {
        Digest::from_sha(&self.0.clone().finalize())
    }

    fn raw(&mut self, text: &str) {
        self.length(text.len());
        self.0.update(text.as_bytes());
    }

    fn length(&mut self, length: usize) {
        self.0.update((length as u64).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_lower_case_sha_256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").as_str(), empty);
        assert_eq!(Digest::parse(&empty.to_uppercase()), Some(Digest::of(b"")));
    }

    #[test]
    fn invalid_digest_is_not_parsed() {
        for text in ["", "abc", &"g".repeat(64), &"a".repeat(65)] {
            assert_eq!(Digest::parse(text), None, "{text}");
        }
    }

    #[test]
    fn field_boundaries_change_digest() {
        let one = DigestBuilder::new().text("a", "bc").text("d", "").finish();
        let other = DigestBuilder::new().text("a", "b").text("cd", "").finish();
        assert_ne!(one, other);
        let flat = DigestBuilder::new().list("l", ["a", "b"]).finish();
        let joined = DigestBuilder::new().list("l", ["ab"]).finish();
        assert_ne!(flat, joined);
    }
}
