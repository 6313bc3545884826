//! Static bearer tokens: made at random, compared in constant time, never shown by accident. [`crate::token_file`] keeps
//! them.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::digest::CtOutput;
use sha2::{Digest as _, Sha256};

use crate::private_file::Unusable;

/// The longest token that somebody shows, in bytes; longer ones are refused unread. Some providers list all groups in theirs.
pub(crate) const MAX_SHOWN_BYTES: usize = 8 * 1024;

/// The longest token of our own, in bytes: one that is compared, or a thread's.
pub const MAX_TOKEN_BYTES: usize = 512;

/// The shortest static token that is accepted, in bytes: below this a configured token is a password to guess.
pub const MIN_SECRET_BYTES: usize = 16;

const RANDOM_BYTES: usize = 32;

/// Why a secret cannot be had. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file exists and cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {cause}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// Others may read the file, and its permissions cannot be narrowed.
    #[error("others can read the secrets in {} and its permissions cannot be changed ({cause}); make it 0600", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The file holds something else.
    #[error("{} is malformed: {problem}; delete it to have a new one made", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The file has nothing that could be shown to anybody.
    #[error("the first line of {} is no token: {problem}; whoever keeps the file has to put one there", .path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No randomness.
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

/// A bearer token that is compared or shown, never decoded: an operator's, a runner's, a service's.
#[derive(Clone)]
pub struct SecretToken(String);

impl SecretToken {
    /// A new token of 32 random bytes.
    ///
    /// # Errors
    ///
    /// If the operating system has no randomness.
    pub fn generate() -> Result<Self, SecretError> {
        Ok(Self(URL_SAFE_NO_PAD.encode(random()?)))
    }

    /// A token from configuration: 16 to 512 visible ASCII characters, surrounding white space ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = (MIN_SECRET_BYTES..=MAX_TOKEN_BYTES).contains(&text.len());
        (fits && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }

    /// A token that is shown, not compared: whoever is called says what it has to be like. A JWT is the longest that
    /// there is; surrounding white space is ignored.
    pub(crate) fn to_show(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = (1..=MAX_SHOWN_BYTES).contains(&text.len());
        (fits && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }

    /// Whether `candidate` is this token, in a time that tells nothing about either.
    #[must_use]
    pub fn matches(&self, candidate: &str) -> bool {
        // Digests have one length, so not even the token's length shows.
        let own: CtOutput<Sha256> = CtOutput::new(Sha256::digest(self.0.as_bytes()));
        let other: CtOutput<Sha256> = CtOutput::new(Sha256::digest(candidate.as_bytes()));
        own == other
    }

    /// The token itself, for the one place that sends it.
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

/// Fresh random bytes from the operating system.
pub(crate) fn random() -> Result<[u8; RANDOM_BYTES], SecretError> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| SecretError::Random(error.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_text_matches() {
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
    fn a_token_never_shows_in_debug_output() {
        let token = SecretToken::generate().unwrap();
        assert!(!format!("{token:?} {:?}", Some(&token)).contains(token.expose()));
    }
}
