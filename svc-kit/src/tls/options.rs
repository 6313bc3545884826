//! The flags of a server's TLS, the same for every service.

use std::path::PathBuf;

use super::{ServerFiles, ServerTls, TlsError};

/// Where a server's certificate lies, if it has one.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TlsOptions {
    /// Serve over TLS with this certificate, PEM, with those that lead to its authority. Read again when it is replaced.
    #[arg(long, env = "TROUPE_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate, PEM.
    #[arg(long, env = "TROUPE_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Know clients by certificates of these authorities, PEM: a URI spiffe://DOMAIN/troupe/KIND/NAME in one says who it is
    /// (KIND: admin, viewer, runner, service). A client that shows none needs a token.
    #[arg(long, env = "TROUPE_TLS_CLIENT_CA", value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
}

impl TlsOptions {
    /// What they say; `None`: no TLS.
    ///
    /// # Errors
    ///
    /// If a file cannot be used.
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

    /// Whether clients may be known by certificates.
    #[must_use]
    pub const fn knows_clients(&self) -> bool {
        self.tls_client_ca.is_some()
    }
}
