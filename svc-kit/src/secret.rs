//! Static bearer tokens: made at random, kept in private files, compared in constant time, never shown by accident.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::digest::CtOutput;
use sha2::{Digest as _, Sha256};

use crate::private_file::{self, Unusable};

/// The longest token that is looked at, in bytes; longer ones are refused unread.
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

/// A bearer token that is compared, not decoded: an operator's, a runner's, a service's.
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

    /// The token of the file at `path`; where there is no file, a new one, written with permissions 0600.
    ///
    /// The caller holds the lock of the directory ([`crate::paths::DataDir`]), so no two processes make different ones.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, written or kept from others, or holds no token.
    pub fn load_or_create(path: &Path) -> Result<Self, SecretError> {
        if let Some(token) = Self::read(path)? {
            return Ok(token);
        }
        let token = Self::generate()?;
        let line = format!("{}\n", token.0);
        private_file::replace(path, line.as_bytes(), private_file::PRIVATE).map_err(|cause| SecretError::Write {
            path: path.to_owned(),
            cause,
        })?;
        Ok(token)
    }

    /// The token in the file, which somebody else has put there: one that is made up here nobody could show.
    ///
    /// # Errors
    ///
    /// If there is no such file, it cannot be read or kept from others, or holds no token.
    pub fn load(path: &Path) -> Result<Self, SecretError> {
        Self::read(path)?.ok_or_else(|| SecretError::Read {
            path: path.to_owned(),
            cause: io::ErrorKind::NotFound.into(),
        })
    }

    fn read(path: &Path) -> Result<Option<Self>, SecretError> {
        let Some(text) = private_file::read(path).map_err(|why| SecretError::unusable(path, why))? else {
            return Ok(None);
        };
        let token = Self::parse(&text).ok_or_else(|| SecretError::Malformed {
            path: path.to_owned(),
            problem: "a token has 16 to 512 visible ASCII characters",
        })?;
        Ok(Some(token))
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
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
    };

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_token_is_made_once_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("operator.token");
        let made = SecretToken::load_or_create(&path).unwrap();
        let kept = SecretToken::load_or_create(&path).unwrap();
        assert_eq!(made, kept);
        assert_eq!(made.expose().len(), 43);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            1,
            "nothing is left aside"
        );
    }

    #[test]
    fn permissions_that_are_too_wide_are_narrowed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("operator.token");
        let made = SecretToken::load_or_create(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(SecretToken::load_or_create(&path).unwrap(), made);
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn a_file_without_a_token_is_an_error_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("operator.token");
        for text in ["", "\n", "short", "two words are not a token"] {
            private_file::replace(&path, text.as_bytes(), private_file::PRIVATE).unwrap();
            let error = SecretToken::load_or_create(&path).unwrap_err();
            assert!(matches!(error, SecretError::Malformed { .. }), "{text:?}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

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
