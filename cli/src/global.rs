//! The flags that every command takes.

use std::{
    convert::Infallible,
    fmt,
    path::{self, PathBuf},
    str::FromStr,
};

use clap::{Args, ValueEnum};
use svc_kit::tls::ClientFiles;

/// Shared flags that are also settings of `up`.
pub(crate) const SHARED_SETTINGS: &[&str] = &["data_dir"];

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Text,
    /// For scripts: one JSON object a line.
    Json,
    /// For code scanners: SARIF 2.1.0; `lint` only.
    Sarif,
}

/// When the templates around the working directory are uploaded to the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum UploadWorkspace {
    /// Where the registry's address is not this machine's.
    #[default]
    Auto,
    /// Wherever it is.
    Always,
    /// Never: it reads its own disk.
    Never,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// How answers are written
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Output,
    /// Where the supervisor is
    #[arg(
        long,
        global = true,
        env = "TROUPE_SUPERVISOR_URL",
        default_value = "http://127.0.0.1:50052",
        value_name = "URL"
    )]
    pub(crate) supervisor: String,
    /// Where the registry is
    #[arg(
        long,
        global = true,
        env = "TROUPE_REGISTRY_URL",
        default_value = "http://127.0.0.1:50051",
        value_name = "URL"
    )]
    pub(crate) registry: String,
    /// Upload the templates around the working directory, for a registry that does not see this disk
    ///
    /// The templates of the project and of your home are sent to the registry once, are named by their content, and
    /// stand for the directory in every question about it; a session that is opened keeps them. Without this flag that
    /// happens where the registry's address is not this machine's. Give it for a registry behind a tunnel or in a
    /// container: `troupe agents --upload-workspace`.
    #[arg(
        long,
        global = true,
        env = "TROUPE_UPLOAD_WORKSPACE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_value_t,
        default_missing_value = "always",
        value_name = "WHEN"
    )]
    pub(crate) upload_workspace: UploadWorkspace,
    /// Who you are; without it, `operator.token` in the data directory
    #[arg(
        long,
        global = true,
        env = "TROUPE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) token: Option<GivenToken>,
    /// A file with it, in its first line
    #[arg(
        long,
        global = true,
        env = "TROUPE_TOKEN_FILE",
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// How services over TLS are reached
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// Where the data of `up` is [default: the XDG data directory]
    #[arg(long, global = true, env = "TROUPE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// How services are reached whose URLs begin with https.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct TlsArgs {
    /// Whose certificates a service may have, where its URL begins with https: PEM [default: the public authorities]
    #[arg(
        long,
        global = true,
        env = "TROUPE_CA",
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub(crate) ca: Option<PathBuf>,
    /// Your own certificate, which says who you are, instead of a token: PEM
    #[arg(
        long,
        global = true,
        env = "TROUPE_CLIENT_CERT",
        value_name = "FILE",
        requires = "client_key",
        help_heading = "Connection"
    )]
    pub(crate) client_cert: Option<PathBuf>,
    /// The key of it: PEM
    #[arg(
        long,
        global = true,
        env = "TROUPE_CLIENT_KEY",
        value_name = "FILE",
        requires = "client_cert",
        help_heading = "Connection"
    )]
    pub(crate) client_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the certificate files: the authorities to trust and the client certificate to present.
    pub(crate) fn files(&self) -> ClientFiles {
        // The MCP server of a thread reads the CA file from another working directory, so the path is absolute.
        let whole = |path: &PathBuf| path::absolute(path).unwrap_or_else(|_| path.clone());
        ClientFiles {
            authorities: self.ca.as_ref().map(whole),
            identity: self.client_cert.clone().zip(self.client_key.clone()),
        }
    }
}

/// A token from the command line or the environment. Its debug format does not reveal it.
#[derive(Clone)]
pub(crate) struct GivenToken(String);

impl FromStr for GivenToken {
    type Err = Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Infallible> {
        Ok(Self(text.trim().to_owned()))
    }
}

impl GivenToken {
    /// Returns the token to send, or `None` if it is blank.
    pub(crate) fn expose(&self) -> Option<&str> {
        Some(self.0.as_str()).filter(|text| !text.is_empty())
    }
}

impl fmt::Debug for GivenToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("GivenToken(…)")
    }
}
