//! The server's side: the files of a listener, and the handshakes of its connections.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::CertificateDer,
        server::{NoServerSessionStorage, WebPkiClientVerifier},
    },
    server::TlsStream,
};

use super::{ALPN, TlsError, authorities, certificates, expiry, key, provider};
use crate::{fresh::Fresh, metrics::meter};

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
    present: Arc<Fresh<Present>>,
}

/// What the files say.
#[derive(Debug)]
struct Present {
    config: Arc<ServerConfig>,
    /// When the first of the certificates ends, in seconds since 1970.
    ends: Option<u64>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// If they cannot be used.
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        let present = Fresh::new(files.paths(), || files.read())?;
        let tls = Self {
            files: Arc::new(files),
            present: Arc::new(present),
        };
        tls.clone().measure();
        Ok(tls)
    }

    /// Tells whoever reads metrics when the certificate ends that the next client is shown.
    fn measure(self) {
        meter()
            .u64_observable_gauge("troupe.tls.certificate.expiry")
            .with_unit("s")
            .with_description("When the certificate of the service ends, in seconds since 1970")
            .with_callback(move |gauge| {
                if let Some(ends) = self.present().ends {
                    gauge.observe(ends, &[]);
                }
            })
            .build();
    }

    /// What the files say now. It may wait for a disk.
    fn present(&self) -> Arc<Present> {
        self.present.get(|| self.files.read())
    }

    /// Does the server's part of a handshake.
    ///
    /// # Errors
    ///
    /// If the peer does not do its own, or not in time.
    pub(crate) async fn accept(self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let present = tokio::task::spawn_blocking(move || self.present())
            .await
            .map_err(io::Error::other)?;
        let acceptor = TlsAcceptor::from(Arc::clone(&present.config));
        timeout(HANDSHAKE_WITHIN, acceptor.accept(stream))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl ServerFiles {
    fn read(&self) -> Result<Present, TlsError> {
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
        let certificates = certificates(&self.certificate)?;
        let ends = expiry::first_end(&certificates);
        let mut config = builder
            .with_single_cert(certificates, key(&self.key)?)
            .map_err(|cause| TlsError::Unusable {
                path: self.certificate.clone(),
                cause,
            })?;
        if self.client_authorities.is_some() {
            // A resumed session would have its client's certificate without another look at it.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Present {
            config: Arc::new(config),
            ends,
        })
    }

    fn paths(&self) -> Vec<PathBuf> {
        let files = [&self.certificate, &self.key];
        files.into_iter().chain(&self.client_authorities).cloned().collect()
    }
}

/// The certificate that the peer of a connection has shown, verified.
pub(crate) fn shown(stream: &TlsStream<TcpStream>) -> Option<&CertificateDer<'static>> {
    stream.get_ref().1.peer_certificates()?.first()
}
