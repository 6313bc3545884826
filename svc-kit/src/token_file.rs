//! Files of static tokens, one per line. All are valid, so that a new one can be distributed before the old one is
//! removed.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    fresh::Fresh,
    private_file,
    secret::{SecretError, SecretToken},
};

/// Maximum number of tokens in a file.
pub const MAX_TOKENS: usize = 8;

/// The tokens of one principal.
#[derive(Clone, Debug)]
pub enum Tokens {
    /// A fixed token.
    One(SecretToken),
    /// The current tokens in a file.
    File(Arc<TokenFile>),
}

impl Tokens {
    /// Returns whether `candidate` is one of the tokens. The time depends only on the number of tokens.
    #[must_use]
    pub fn matches(&self, candidate: &str) -> bool {
        match self {
            Self::One(token) => token.matches(candidate),
            Self::File(file) => file.read().matches(candidate),
        }
    }

    /// Returns the token that a client in this process presents: the first one.
    #[must_use]
    pub fn first(&self) -> SecretToken {
        match self {
            Self::One(token) => token.clone(),
            Self::File(file) => file.read().first.clone(),
        }
    }
}

impl From<SecretToken> for Tokens {
    fn from(token: SecretToken) -> Self {
        Self::One(token)
    }
}

/// A token file that is read again after a change. While it is invalid, the previous tokens are used.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    lines: Fresh<Lines>,
}

impl TokenFile {
    /// Loads the tokens in an existing file. Does not create a missing file, because no client would have the generated
    /// token.
    ///
    /// # Errors
    ///
    /// The file is missing, cannot be read or protected, or contains no tokens.
    pub fn load(path: PathBuf) -> Result<Tokens, SecretError> {
        let lines = Fresh::new(vec![path.clone()], || Lines::load(&path))?;
        Ok(Tokens::File(Arc::new(Self { path, lines })))
    }

    /// Loads the tokens in the file at `path`. Creates the file with one token and mode 0600 if it is missing.
    ///
    /// The caller must hold the lock of the directory ([`crate::paths::DataDir`]), so that two processes do not create
    /// different tokens.
    ///
    /// # Errors
    ///
    /// The file cannot be read, written or protected, or contains no tokens.
    pub fn load_or_create(path: PathBuf) -> Result<Tokens, SecretError> {
        if Lines::read(&path)?.is_none() {
            let line = format!("{}\n", SecretToken::generate()?.expose());
            private_file::replace(&path, line.as_bytes(), private_file::PRIVATE).map_err(|cause| {
                SecretError::Write {
                    path: path.clone(),
                    cause,
                }
            })?;
        }
        Self::load(path)
    }

    fn read(&self) -> Arc<Lines> {
        self.lines.get(|| Lines::load(&self.path))
    }
}

/// Returns the non-blank lines of the text without surrounding white space.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// The tokens of a file, at least one.
#[derive(Debug)]
struct Lines {
    first: SecretToken,
    others: Vec<SecretToken>,
}

impl Lines {
    fn load(path: &Path) -> Result<Self, SecretError> {
        Self::read(path)?.ok_or_else(|| SecretError::Read {
            path: path.to_owned(),
            cause: std::io::ErrorKind::NotFound.into(),
        })
    }

    /// Returns `None` if the file does not exist.
    fn read(path: &Path) -> Result<Option<Self>, SecretError> {
        let Some(text) = private_file::read(path).map_err(|why| SecretError::unusable(path, why))? else {
            return Ok(None);
        };
        let parsed = Self::parse(&text).map_err(|problem| SecretError::Malformed {
            path: path.to_owned(),
            problem,
        })?;
        Ok(Some(parsed))
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        const NO_TOKEN: &str = "a token has 16 to 512 visible ASCII characters";
        if lines(text).nth(MAX_TOKENS).is_some() {
            return Err("it has more than 8 tokens");
        }
        let mut tokens = lines(text).map(|line| SecretToken::parse(line).ok_or(NO_TOKEN));
        Ok(Self {
            first: tokens.next().ok_or(NO_TOKEN)??,
            others: tokens.collect::<Result<_, _>>()?,
        })
    }

    fn matches(&self, candidate: &str) -> bool {
        let mut found = self.first.matches(candidate);
        // Compare all tokens so that the time does not reveal which one matches.
        for token in &self.others {
            found |= token.matches(candidate);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
    };

    use super::*;

    const OLD: &str = "old-old-old-old-old";
    const NEW: &str = "new-new-new-new-new";

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn token_is_created_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("operator.token");
        let made = TokenFile::load_or_create(path.clone()).unwrap().first();
        let kept = TokenFile::load_or_create(path.clone()).unwrap().first();
        assert_eq!(made, kept);
        assert_eq!(made.expose().len(), 43);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            1,
            "no temporary file remains"
        );
    }

    #[test]
    fn too_wide_permissions_are_narrowed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("operator.token");
        let made = TokenFile::load_or_create(path.clone()).unwrap().first();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(TokenFile::load_or_create(path.clone()).unwrap().first(), made);
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn invalid_token_file_is_an_error_and_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("operator.token");
        let many = format!("{OLD}\n").repeat(MAX_TOKENS + 1);
        let mixed = format!("{OLD}\nshort\n");
        for text in ["", "\n", "short", "two words are not a token", &mixed, &many] {
            private_file::replace(&path, text.as_bytes(), private_file::PRIVATE).unwrap();
            let error = TokenFile::load_or_create(path.clone()).unwrap_err();
            assert!(matches!(error, SecretError::Malformed { .. }), "{text:?}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert!(matches!(
            TokenFile::load(directory.path().join("none")),
            Err(SecretError::Read { .. })
        ));
    }

    #[test]
    fn all_tokens_match_and_first_is_presented() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let write = |text: &str| private_file::replace(&path, text.as_bytes(), private_file::PRIVATE).unwrap();
        write(&format!("\n  {OLD}\r\n\n\t{NEW} \n\n"));
        let tokens = TokenFile::load(path.clone()).unwrap();
        assert!(tokens.matches(OLD) && tokens.matches(NEW));
        assert!(!tokens.matches("") && !tokens.matches(&format!("{OLD}\n{NEW}")));
        assert_eq!(tokens.first().expose(), OLD);

        let text: Vec<_> = (0..MAX_TOKENS).map(|number| format!("{OLD}{number}")).collect();
        write(&text.join("\n"));
        let tokens = TokenFile::load(path.clone()).unwrap();
        assert!(text.iter().all(|token| tokens.matches(token)));
    }

    #[test]
    fn changed_token_file_is_used_if_valid() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let write = |text: &str| private_file::replace(&path, text.as_bytes(), private_file::PRIVATE).unwrap();
        let counts = |tokens: &Tokens| (tokens.matches(OLD), tokens.matches(NEW));
        write(OLD);
        let tokens = TokenFile::load(path.clone()).unwrap();
        assert_eq!(counts(&tokens), (true, false));
        write(&format!("{OLD}\n{NEW}\n"));
        assert_eq!(counts(&tokens), (true, true));
        for broken in ["", "short", "two words are no token\n"] {
            write(broken);
            assert_eq!(counts(&tokens), (true, true), "{broken:?}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(counts(&tokens), (true, true));
        write(NEW);
        assert_eq!(counts(&tokens), (false, true));
        assert_eq!(tokens.first().expose(), NEW);
    }
}
