//! The caller's token and its source.
//!
//! The sources in order: a given token, a given token file, `operator.token` in the data directory, none. A token from
//! the data directory is sent to this machine only, so a remote service never receives it. If a service rejects such a
//! token, the call is repeated without it ([`crate::Identified`]), because the token may belong to another
//! service.

use std::{
    convert::Infallible,
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::{data_dir::OPERATOR_TOKEN, error::Error};

/// A token that the caller gives. Its debug format does not reveal it.
#[derive(Clone)]
pub struct GivenToken(String);

impl FromStr for GivenToken {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.trim().to_owned()))
    }
}

impl GivenToken {
    /// Returns the token to send, or `None` if it is blank.
    #[must_use]
    pub fn expose(&self) -> Option<&str> {
        Some(self.0.as_str()).filter(|text| !text.is_empty())
    }
}

impl fmt::Debug for GivenToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("GivenToken(…)")
    }
}

/// The source of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The caller gave it.
    Given,
    /// The file that the caller named.
    File(PathBuf),
    /// The file in the data directory.
    Found(PathBuf),
    /// There is no token.
    Nowhere,
}

/// A token and its source.
#[derive(Clone)]
pub struct Token {
    text: Option<String>,
    origin: Origin,
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Token")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl Token {
    /// Creates an absent token.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            text: None,
            origin: Origin::Nowhere,
        }
    }

    /// Creates a token from its text.
    #[must_use]
    pub fn given(text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            origin: Origin::Given,
        }
    }

    /// Reads the token in a data directory.
    pub(crate) fn in_data_dir(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(OPERATOR_TOKEN);
        let first = first_line(&path)?;
        Ok(first.map_or_else(Self::none, |text| Self {
            text: Some(text),
            origin: Origin::Found(path),
        }))
    }

    /// Reads the first token in a file that the caller named.
    pub(crate) fn in_file(path: &Path) -> Result<Self, Error> {
        let text = first_line(path)?.ok_or_else(|| Error::NoToken { path: path.to_owned() })?;
        Ok(Self {
            text: Some(text),
            origin: Origin::File(path.to_owned()),
        })
    }

    /// Returns the token, for the code that sends it.
    #[must_use]
    pub fn expose(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Returns whether the token was found in the data directory instead of being named by the caller.
    #[must_use]
    pub const fn is_found(&self) -> bool {
        matches!(self.origin, Origin::Found(_))
    }

    /// Returns the source of the token.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }
}

/// Returns the first line of a file that is not blank. Returns `None` if the file does not exist or is blank.
fn first_line(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .map(str::to_owned)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::TokenFile {
            path: path.to_owned(),
            cause,
        }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_no_token() {
        let given: GivenToken = "very-secret-token".parse().unwrap();
        let token = Token::given("very-secret-token");
        assert!(!format!("{given:?}{token:?}").contains("secret"));
    }
}
