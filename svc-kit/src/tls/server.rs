//! The server's side: the files of a listener, and the handshakes of its connections.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::CertificateDer, server::WebPkiClientVerifier},
    server::TlsStream,
};

use super::{ALPN, TlsError, authorities, certificates, key, provider};

/// How long a handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// What a server shows and whom it believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its certificate, with those that lead to an authority.
    pub certificate: PathBuf,
    /// The key of it.
    pub key: PathBuf,
    /// The authorities of clients' certificates. A client need not show one; None: none is asked for.
    pub client_authorities: Option<PathBuf>,
}

/// TLS of a listener.
#[derive(Clone, Debug)]
pub struct ServerTls {
    files: Arc<ServerFiles>,
    present: Arc<Mutex<Present>>,
}

#[derive(Debug)]
struct Present {
    config: Arc<ServerConfig>,
    /// As the files were when it was made, or could not be.
    seen: Vec<Option<Stamp>>,
}

/// What changes with a file's content: Kubernetes swaps links, editors replace files, others write into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// If they cannot be used.
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        let seen = files.stamps();
        let present = Present {
            config: Arc::new(files.config()?),
            seen,
        };
        Ok(Self {
            files: Arc::new(files),
            present: Arc::new(Mutex::new(present)),
        })
    }

    /// Does the server's part of a handshake.
    ///
    /// # Errors
    ///
    /// If the peer does not do its own, or not in time.
    pub(crate) async fn accept(self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        // It may wait for a disk.
        let config = tokio::task::spawn_blocking(move || self.config())
            .await
            .map_err(io::Error::other)?;
        timeout(HANDSHAKE_WITHIN, TlsAcceptor::from(config).accept(stream))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The configuration for the next connection: anew if the files are, the one before if the new ones are of no use.
    fn config(&self) -> Arc<ServerConfig> {
        let seen = self.files.stamps();
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if seen != present.seen {
            present.seen = seen;
            match self.files.config() {
                Ok(config) => {
                    tracing::info!(certificate = %self.files.certificate.display(), "the certificate is a new one");
                    present.config = Arc::new(config);
                }
                // Certificate and key are two files: between the one and the other they do not fit.
                Err(error) => tracing::warn!(%error, "the certificate stays as it was"),
            }
        }
        Arc::clone(&present.config)
    }
}

impl ServerFiles {
    fn config(&self) -> Result<ServerConfig, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unsupported)?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider())
                    .allow_unauthenticated()
                    .build()
                    .map_err(|cause| TlsError::Authorities {
                        path: path.clone(),
                        cause,
                    })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(certificates(&self.certificate)?, key(&self.key)?)
            .map_err(|cause| TlsError::Unusable {
                path: self.certificate.clone(),
                cause,
            })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let files = [&self.certificate, &self.key];
        let files = files.into_iter().chain(&self.client_authorities);
        files.map(|path| stamp(path)).collect()
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    Some(Stamp {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
    })
}

/// The certificate that the peer of a connection has shown, verified.
pub(crate) fn shown(stream: &TlsStream<TcpStream>) -> Option<&CertificateDer<'static>> {
    stream.get_ref().1.peer_certificates()?.first()
}
