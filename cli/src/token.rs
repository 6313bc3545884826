//! The caller's token and its source.
//!
//! The sources in order: `--token` or `TROUPE_TOKEN`, the file of `--token-file` or `TROUPE_TOKEN_FILE`,
//! `operator.token` in the data directory, none. A token from the data directory is sent to this machine only, so a
//! remote service never receives it. If a service rejects such a token, the call is repeated without it
//! ([`crate::client::Identified`]), because the token may belong to another service.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use svc_kit::{listen::is_this_machine, paths, shown_token::ShownToken, token_file};

use crate::{
    error::{Error, Result},
    global::{GivenToken, Global},
};

/// The file of the operator's token in the data directory.
pub(crate) const FILE: &str = "operator.token";

/// The source of the token, for `doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `--token` or `TROUPE_TOKEN`.
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
pub(crate) struct Token {
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
    pub(crate) const fn none() -> Self {
        Self {
            text: None,
            origin: Origin::Nowhere,
        }
    }

    /// Creates a token from its text.
    pub(crate) fn given(text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            origin: Origin::Given,
        }
    }

    /// Finds the token for calls to a service at `host`.
    ///
    /// # Errors
    ///
    /// Fails if the token file exists but cannot be read.
    pub(crate) fn find(global: &Global, host: &str) -> Result<Self> {
        if let Some(text) = global.token.as_ref().and_then(GivenToken::expose) {
            return Ok(Self::given(text));
        }
        if let Some(path) = &global.token_file {
            return match Self::from_file(path)? {
                Some(token) => Ok(token),
                None => Err(Error::failure(format!("there is no token in {}", path.display()))
                    .hint("--token-file and TROUPE_TOKEN_FILE name a file with nothing but tokens")),
            };
        }
        let directory = match &global.data_dir {
            Some(directory) => directory.clone(),
            None if !is_this_machine(host) => return Ok(Self::none()),
            None => match paths::default_data_dir() {
                Ok(directory) => directory,
                // Without a home directory, there is no token file.
                Err(_) => return Ok(Self::none()),
            },
        };
        Self::from_directory(&directory)
    }

    /// Reads the token in a data directory.
    fn from_directory(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        Ok(Self::from_file(&path)?.map_or_else(Self::none, |token| Self {
            origin: Origin::Found(path),
            ..token
        }))
    }

    /// Reads the first token in a file. Returns `None` if the file does not exist or is empty.
    fn from_file(path: &Path) -> Result<Option<Self>> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(token_file::lines(&text).next().map(|first| Self {
                text: Some(first.to_owned()),
                origin: Origin::File(path.to_owned()),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::failure(format!("cannot read {}: {error}", path.display()))
                .hint("pass --token, or make the file readable to you")),
        }
    }

    /// Returns the token, for the only place that sends it.
    pub(crate) fn expose(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Returns the token for long-running processes. A token from a file is read again when the file changes.
    ///
    /// # Errors
    ///
    /// Fails if the token cannot be sent.
    pub(crate) fn to_show(&self) -> Result<Option<ShownToken>> {
        match (&self.origin, self.expose()) {
            (Origin::File(path) | Origin::Found(path), _) => {
                ShownToken::load(path.clone()).map(Some).map_err(Error::of)
            }
            (Origin::Given, Some(text)) => text.parse::<ShownToken>().map(Some).map_err(Error::usage),
            (Origin::Given | Origin::Nowhere, _) => Ok(None),
        }
    }

    /// Returns whether the token was found in the data directory instead of being named by the caller.
    pub(crate) const fn is_found(&self) -> bool {
        matches!(self.origin, Origin::Found(_))
    }

    /// Returns the source of the token.
    pub(crate) const fn origin(&self) -> &Origin {
        &self.origin
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::{
        global::{TlsArgs, UploadWorkspace},
        output::OutputArgs,
    };

    fn global(token: Option<&str>, data_dir: Option<&Path>) -> Global {
        Global {
            output: OutputArgs::default(),
            context: None,
            supervisor: String::new(),
            registry: String::new(),
            upload_workspace: UploadWorkspace::Auto,
            token: token.map(|text| text.parse().unwrap()),
            token_file: None,
            tls: TlsArgs::default(),
            data_dir: data_dir.map(Path::to_owned),
        }
    }

    #[test]
    fn given_token_wins_over_files() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), "from-the-file\n").unwrap();

        let given = Token::find(&global(Some("from-me"), Some(directory.path())), "127.0.0.1").unwrap();
        assert_eq!((given.expose(), given.origin()), (Some("from-me"), &Origin::Given));

        let named = directory.path().join("named");
        fs::write(&named, "\n from-the-named-file\nanother\n").unwrap();
        let mut global_with_file = global(None, Some(directory.path()));
        global_with_file.token_file = Some(named.clone());
        let found = Token::find(&global_with_file, "10.0.0.7").unwrap();
        assert_eq!(
            (found.expose(), found.origin()),
            (Some("from-the-named-file"), &Origin::File(named))
        );
        global_with_file.token_file = Some(directory.path().join("none"));
        assert!(Token::find(&global_with_file, "127.0.0.1").is_err());

        let found = Token::find(&global(None, Some(directory.path())), "127.0.0.1").unwrap();
        assert_eq!(found.expose(), Some("from-the-file"));
        assert_eq!(found.origin(), &Origin::Found(directory.path().join(FILE)));
        assert!(found.is_found() && !given.is_found());
    }

    #[test]
    fn blank_token_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let none = Token::find(&global(Some("  "), Some(directory.path())), "127.0.0.1").unwrap();
        assert_eq!((none.expose(), none.origin()), (None, &Origin::Nowhere));
        fs::write(directory.path().join(FILE), "\n").unwrap();
        let none = Token::find(&global(None, Some(directory.path())), "127.0.0.1").unwrap();
        assert_eq!(none.expose(), None);
    }

    #[test]
    fn default_token_file_stays_on_this_machine() {
        let found = Token::find(&global(None, None), "troupe.example.com").unwrap();
        assert_eq!(found.origin(), &Origin::Nowhere);
        for host in ["127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["10.0.0.1", "localhost.example.com", "0.0.0.0", ""] {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn long_running_token_follows_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "from-the-file\n").unwrap();
        let mut named = global(None, None);
        named.token_file = Some(path.clone());
        let found = Token::find(&named, "127.0.0.1").unwrap();
        let shown = found.to_show().unwrap().unwrap();
        assert_eq!(shown.present().expose(), "from-the-file");
        fs::write(&path, "from-the-file-as-it-is-now\n").unwrap();
        assert_eq!(shown.present().expose(), "from-the-file-as-it-is-now");

        let given = Token::given("s3cret").to_show().unwrap().unwrap();
        assert_eq!(given.present().expose(), "s3cret");
        assert!(Token::none().to_show().unwrap().is_none());
        let refused = Token::given("two s3crets").to_show().unwrap_err();
        assert!(!refused.to_string().contains("s3crets"), "{refused}");
    }

    #[test]
    fn debug_output_shows_no_token() {
        let given: GivenToken = "very-secret-token".parse().unwrap();
        let token = Token::given("very-secret-token");
        assert!(!format!("{given:?}{token:?}").contains("secret"));
    }
}
