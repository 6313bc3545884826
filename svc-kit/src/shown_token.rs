//! The token that a client presents: a fixed one, or the first one in a file.
//!
//! This module only carries the token; the server checks it and limits its length. Another program or a person
//! maintains the file. For example, the kubelet projects a new token before the old one expires.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use crate::{
    fresh::Fresh,
    private_file,
    secret::{SecretError, SecretToken},
    token_file::lines,
};

/// The error for an invalid token.
const NO_TOKEN: &str = "a token has 1 to 8192 visible ASCII characters";

/// The token that a client presents.
#[derive(Clone, Debug)]
pub enum ShownToken {
    /// A fixed token.
    One(SecretToken),
    /// The first token in a file.
    File(Arc<ShownFile>),
}

/// A token file that is read again after a change. While it contains no valid token, the previous one is used.
#[derive(Debug)]
pub struct ShownFile {
    path: PathBuf,
    first: Fresh<SecretToken>,
}

impl ShownToken {
    /// Loads the first token of the file.
    ///
    /// # Errors
    ///
    /// The file is missing or cannot be read, or its first line is not a token.
    pub fn load(path: PathBuf) -> Result<Self, SecretError> {
        let first = Fresh::new(vec![path.clone()], || read(&path))?;
        Ok(Self::File(Arc::new(ShownFile { path, first })))
    }

    /// Returns the current token. May block on disk access.
    #[must_use]
    pub fn present(&self) -> SecretToken {
        match self {
            Self::One(token) => token.clone(),
            Self::File(file) => SecretToken::clone(&file.first.get(|| read(&file.path))),
        }
    }
}

impl From<SecretToken> for ShownToken {
    fn from(token: SecretToken) -> Self {
        Self::One(token)
    }
}

impl FromStr for ShownToken {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        SecretToken::to_show(text).map(Self::One).ok_or(NO_TOKEN)
    }
}

fn read(path: &Path) -> Result<SecretToken, SecretError> {
    let unreadable = |cause| SecretError::Read {
        path: path.to_owned(),
        cause,
    };
    let text = private_file::read_maintained(path)
        .map_err(unreadable)?
        .ok_or_else(|| unreadable(std::io::ErrorKind::NotFound.into()))?;
    let first = lines(&text).next().and_then(SecretToken::to_show);
    first.ok_or_else(|| SecretError::NoToken {
        path: path.to_owned(),
        problem: NO_TOKEN,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;
    use crate::secret::MAX_SHOWN_BYTES;

    /// Returns a token with the length of a service account's token.
    fn long(letter: char) -> String {
        letter.to_string().repeat(1_500)
    }

    #[test]
    fn token_has_visible_characters_and_bounded_length() {
        assert!(NO_TOKEN.contains(&MAX_SHOWN_BYTES.to_string()));
        let longest = "x".repeat(MAX_SHOWN_BYTES);
        for text in ["x", "s3cret", &longest, "  padded\n"] {
            let token: ShownToken = text.parse().unwrap();
            assert_eq!(token.present().expose(), text.trim());
        }
        for text in ["", " ", "two words", "a\nb", "é", &format!("{longest}x")] {
            assert!(text.parse::<ShownToken>().is_err(), "{text:?}");
        }
        let token: ShownToken = "s3cret".parse().unwrap();
        assert!(!format!("{token:?}").contains("s3cret"));
    }

    #[test]
    fn file_without_token_is_rejected_without_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        assert!(matches!(ShownToken::load(path.clone()), Err(SecretError::Read { .. })));
        for text in ["", "\n\n", "two words", &"s3cret".repeat(MAX_SHOWN_BYTES)] {
            fs::write(&path, text).unwrap();
            let error = ShownToken::load(path.clone()).unwrap_err();
            assert!(matches!(error, SecretError::NoToken { .. }), "{error}");
            assert!(!error.to_string().contains("words") && !error.to_string().contains("s3cret"));
        }
        fs::write(&path, "\n first-one \nsecond-one\n").unwrap();
        let token = ShownToken::load(path).unwrap();
        assert_eq!(token.present().expose(), "first-one");
        assert!(!format!("{token:?}").contains("first-one"));
    }

    #[test]
    fn replaced_token_file_is_used_if_valid() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        // Writes as Kubernetes' atomic writer does: a directory for each version, and a link that is replaced.
        let write = |generation: &str, text: &str| {
            let target = root.join(generation);
            fs::create_dir(&target).unwrap();
            fs::write(target.join("token"), text).unwrap();
            fs::set_permissions(target.join("token"), fs::Permissions::from_mode(0o640)).unwrap();
            symlink(generation, root.join("..data_tmp")).unwrap();
            fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        };
        write("..1", &long('a'));
        symlink("..data/token", root.join("token")).unwrap();
        let token = ShownToken::load(root.join("token")).unwrap();
        assert_eq!(token.present().expose(), long('a'));
        write("..2", &long('b'));
        fs::remove_dir_all(root.join("..1")).unwrap();
        assert_eq!(token.present().expose(), long('b'));
        write("..3", "no token");
        assert_eq!(token.present().expose(), long('b'));
        fs::remove_file(root.join("..data")).unwrap();
        assert_eq!(token.present().expose(), long('b'));
        write("..4", &long('c'));
        assert_eq!(token.present().expose(), long('c'));
    }
}
