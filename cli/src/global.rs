//! The flags that every command takes.

use std::path::{self, PathBuf};

use clap::{Args, ValueEnum};
use troupe_client::{Settings, tls::ClientFiles, token::GivenToken};

use crate::{error::Result, output::OutputArgs};

/// Shared flags that are also settings of `up`.
pub(crate) const SHARED_SETTINGS: &[&str] = &["data_dir"];

/// When the templates around the working directory are uploaded to the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum UploadWorkspace {
    /// If the registry's address is on another machine.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never; the registry reads its own disk.
    Never,
}

/// The flags that every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Global {
    /// Context of ~/.config/troupe/config.yaml that supplies the connection flags [default: the current context]
    #[arg(long, global = true, env = "TROUPE_CONTEXT", value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// URL of the supervisor
    #[arg(
        long,
        global = true,
        env = "TROUPE_SUPERVISOR_URL",
        default_value = "http://127.0.0.1:50052",
        value_name = "URL"
    )]
    pub(crate) supervisor: String,
    /// URL of the registry
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
    /// The command sends the templates of the project and of your home to the registry, which identifies them by
    /// their content. A new session keeps them. By default, templates are uploaded if the registry's address is on
    /// another machine. Set the flag for a registry behind a tunnel or in a container:
    /// `troupe agents --upload-workspace`.
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
    /// Bearer token [default: `operator.token` in the data directory]
    #[arg(
        long,
        global = true,
        env = "TROUPE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) token: Option<GivenToken>,
    /// Bearer token file; the first line is used
    #[arg(long, global = true, env = "TROUPE_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// TLS settings
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// Data directory of `up` [default: the XDG data directory]
    #[arg(long, global = true, env = "TROUPE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The output format and its details.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl Global {
    /// Sets each connection flag that is not given to its value in the context that applies.
    ///
    /// # Errors
    ///
    /// Fails if the context does not exist, or if the file of the contexts is malformed.
    pub(crate) fn resolve(&mut self, is_given: impl Fn(&str) -> bool) -> Result<()> {
        let mut given = self.settings();
        // A default URL is not a given flag: the context takes precedence over the default.
        given.supervisor = given.supervisor.filter(|_| is_given("supervisor"));
        given.registry = given.registry.filter(|_| is_given("registry"));
        let found = given.resolve()?;
        self.supervisor = found.supervisor.unwrap_or_else(|| self.supervisor.clone());
        self.registry = found.registry.unwrap_or_else(|| self.registry.clone());
        self.token_file = found.token_file;
        self.tls.ca = found.tls.authorities;
        (self.tls.client_cert, self.tls.client_key) = found.tls.identity.unzip();
        Ok(())
    }

    /// Returns the flags as settings of a client.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            context: self.context.clone(),
            supervisor: Some(self.supervisor.clone()),
            registry: Some(self.registry.clone()),
            token: self.token.clone(),
            token_file: self.token_file.clone(),
            tls: self.tls.files(),
            data_dir: self.data_dir.clone(),
        }
    }

    /// Returns the name of the supervisor for people: the name of the context, or the address without a context.
    pub(crate) fn server_name(&self) -> String {
        let url = self.supervisor.as_str();
        let address = url.split_once("://").map_or(url, |(_, address)| address);
        self.context.clone().unwrap_or_else(|| address.to_owned())
    }
}

/// Certificates for services whose URLs begin with https.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct TlsArgs {
    /// CA certificates for https services, PEM [default: public CAs]
    #[arg(long, global = true, env = "TROUPE_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Client certificate instead of a token, PEM
    #[arg(
        long,
        global = true,
        env = "TROUPE_CLIENT_CERT",
        value_name = "FILE",
        requires = "client_key"
    )]
    pub(crate) client_cert: Option<PathBuf>,
    /// Key of the client certificate, PEM
    #[arg(
        long,
        global = true,
        env = "TROUPE_CLIENT_KEY",
        value_name = "FILE",
        requires = "client_cert"
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
