//! Static bearer tokens: generated at random, compared in constant time, never printed by accident.
//! [`crate::token_file`] stores them.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::digest::CtOutput;
use sha2::{Digest as _, Sha256};

use crate::private_file::Unusable;

/// Maximum length in bytes of a token that a caller presents. Longer tokens are rejected unread. The limit is high
/// because JWTs of some providers list all groups of a user.
pub(crate) const MAX_SHOWN_BYTES: usize = 8 * 1024;

/// Maximum length in bytes of a token of Troupe: a static token or a thread token.
pub const MAX_TOKEN_BYTES: usize = 512;

/// Minimum length in bytes of a static token. A shorter one could be guessed like a password.
pub const MIN_SECRET_BYTES: usize = 16;

const RANDOM_BYTES: usize = 32;

/// The reason why a secret is not available. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file exists and cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {cause}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// Other users can read the file, and its permissions cannot be narrowed.
    #[error("others can read the secrets in {} and its permissions cannot be changed ({cause}); make it 0600", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The content is malformed.
    #[error("{} is malformed: {problem}; delete it, and the next start creates a new one", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The defect.
        problem: &'static str,
    },
    /// The file has no token that could be presented.
    #[error("invalid token in the first line of {:?}: {problem}; write a token into the file", .path)]
    NoToken {
        /// The file.
        path: PathBuf,
        /// The defect.
        problem: &'static str,
    },
    /// The operating system has no random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    Random(String),
}

impl SecretError {
    pub(crate) fn unusable(path: &Path, why: Unusable) -> Self {
        let path = path.to_owned();
        match why {
            Unusable::Read(cause) => Self::Read { path, cause },
            Unusable::Exposed(cause) => Self::Exposed { path, cause },
        }
    }
}

/// A bearer token that is compared or presented, and never decoded.
#[derive(Clone)]
pub struct SecretToken(String);

impl SecretToken {
    /// Generates a token of 32 random bytes.
    ///
    /// # Errors
    ///
    /// The operating system has no random bytes.
    pub fn generate() -> Result<Self, SecretError> {
        Ok(Self(URL_SAFE_NO_PAD.encode(random()?)))
    }

    /// Parses a configured token: 16 to 512 visible ASCII characters. Surrounding white space is ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = (MIN_SECRET_BYTES..=MAX_TOKEN_BYTES).contains(&text.len());
        (fits && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }

    /// Parses a token to present to a server. The server defines the format of the token; the longest tokens are JWTs.
    /// Surrounding white space is ignored.
    pub(crate) fn to_show(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = (1..=MAX_SHOWN_BYTES).contains(&text.len());
        (fits && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }

    /// Returns whether `candidate` is this token. The duration depends on neither token.
    #[must_use]
    pub fn matches(&self, candidate: &str) -> bool {
        // Digests have a fixed length, so that the time does not reveal the token's length.
        let own: CtOutput<Sha256> = CtOutput::new(Sha256::digest(self.0.as_bytes()));
        let other: CtOutput<Sha256> = CtOutput::new(Sha256::digest(candidate.as_bytes()));
        own == other
    }

    /// Returns the token's text, for the code that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl PartialEq for SecretToken {
    fn eq(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }
}

impl Eq for SecretToken {}

impl fmt::Debug for SecretToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SecretToken(..)")
    }
}

/// Returns random bytes from the operating system.
pub(crate) fn random() -> Result<[u8; RANDOM_BYTES], SecretError> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| SecretError::Random(error.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_identical_token_matches() {
        let token = SecretToken::parse(" 0123456789abcdef\n").unwrap();
        for (candidate, same) in [
            ("0123456789abcdef", true),
            ("0123456789abcdeF", false),
            ("0123456789abcde", false),
            ("0123456789abcdef0", false),
            ("", false),
        ] {
            assert_eq!(token.matches(candidate), same, "{candidate}");
        }
    }

    #[test]
    fn token_is_absent_from_debug_output() {
        let token = SecretToken::generate().unwrap();
        assert!(!format!("{token:?} {:?}", Some(&token)).contains(token.expose()));
    }
}
