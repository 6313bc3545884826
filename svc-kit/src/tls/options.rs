//! The TLS flags of all services.

use std::path::PathBuf;

use troupe_client::tls::TlsError;

use super::{ServerFiles, ServerTls};

/// The TLS flags of a server.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TlsOptions {
    /// Certificate chain in PEM; enables TLS. Read again after a change.
    #[arg(long, env = "TROUPE_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM.
    #[arg(long, env = "TROUPE_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Authorities of client certificates in PEM. A URI spiffe://DOMAIN/troupe/KIND/NAME in a certificate identifies
    /// the client (KIND: admin, viewer, runner, service; at the A2A port caller). A client without a certificate needs
    /// a token.
    #[arg(long, env = "TROUPE_TLS_CLIENT_CA", value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
}

impl TlsOptions {
    /// Loads the files of the flags. Returns `None` if TLS is disabled.
    ///
    /// # Errors
    ///
    /// A file cannot be used.
    pub fn load(self) -> Result<Option<ServerTls>, TlsError> {
        let (Some(certificate), Some(key)) = (self.tls_cert, self.tls_key) else {
            return Ok(None);
        };
        let files = ServerFiles {
            certificate,
            key,
            client_authorities: self.tls_client_ca,
        };
        ServerTls::load(files).map(Some)
    }

    /// Returns whether certificates can identify clients.
    #[must_use]
    pub const fn knows_clients(&self) -> bool {
        self.tls_client_ca.is_some()
    }
}
