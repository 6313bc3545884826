//! The token that a caller shows: as it was given, or the first of a file as that is now.
//!
//! Who is called compares a token or checks a signature, and says how long one may be; here it is only carried. Somebody
//! else keeps the file and changes it: a person, or the kubelet, which projects a new token before the old one ends.

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

/// What is wrong with a text that is no token.
const NO_TOKEN: &str = "a token has 1 to 8192 visible ASCII characters";

/// What a caller shows.
#[derive(Clone, Debug)]
pub enum ShownToken {
    /// This one, as long as the process lives.
    One(SecretToken),
    /// That of a file.
    File(Arc<ShownFile>),
}

/// A file that is read again when it has changed. While it has no token, the one before is shown.
#[derive(Debug)]
pub struct ShownFile {
    path: PathBuf,
    first: Fresh<SecretToken>,
}

impl ShownToken {
    /// The first token of the file, which has to have one.
    ///
    /// # Errors
    ///
    /// If there is no such file, it cannot be read, or its first line is no token.
    pub fn load(path: PathBuf) -> Result<Self, SecretError> {
        let first = Fresh::new(vec![path.clone()], || read(&path))?;
        Ok(Self::File(Arc::new(ShownFile { path, first })))
    }

    /// The one to show now. It may wait for a disk.
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
    let text = private_file::read_kept(path)
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

    /// As long as a token of a service account is.
    fn long(letter: char) -> String {
        letter.to_string().repeat(1_500)
    }

    #[test]
    fn a_token_is_visible_and_at_most_as_long_as_a_jwt() {
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
    fn a_file_has_to_have_one_and_says_nothing_of_what_it_has() {
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
    fn what_the_kubelet_swaps_is_shown_at_once_and_what_is_broken_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        // As an atomic writer does it: a directory for each generation, and a link that is moved.
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
