//! Server TLS: the files of a listener and the handshakes of its connections.

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

use troupe_client::tls::{ALPN, TlsError, authorities, certificates, key, provider};

use super::expiry;
use crate::{fresh::Fresh, instruments::meter};

/// Maximum duration of a handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// The ALPN protocol of HTTP/1.1.
const HTTP1: &[u8] = b"http/1.1";

/// The TLS files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate with its chain.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authorities of client certificates. Clients may connect without a certificate. `None` if no client
    /// certificate is requested.
    pub client_authorities: Option<PathBuf>,
}

/// The TLS configuration of a listener.
#[derive(Clone, Debug)]
pub struct ServerTls {
    files: Arc<ServerFiles>,
    present: Arc<Fresh<Present>>,
    http1: bool,
}

/// The content of the files.
#[derive(Debug)]
struct Present {
    config: Arc<ServerConfig>,
    /// The earliest expiry of the certificates in seconds since 1970.
    ends: Option<u64>,
}

impl ServerTls {
    /// Loads the files.
    ///
    /// # Errors
    ///
    /// The files cannot be used.
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        let present = Fresh::new(files.paths(), || files.read())?;
        let tls = Self {
            files: Arc::new(files),
            present: Arc::new(present),
            http1: false,
        };
        tls.clone().measure();
        Ok(tls)
    }

    /// Offers HTTP/1.1 in addition to HTTP/2, for ports that do not only serve gRPC.
    #[must_use]
    pub fn with_http1(self) -> Self {
        Self { http1: true, ..self }
    }

    /// Exports the expiry of the current certificate as a metric.
    fn measure(self) {
        meter()
            .u64_observable_gauge("troupe.tls.certificate.expiry")
            .with_unit("s")
            .with_description("Expiry of the service's certificate, in seconds since 1970")
            .with_callback(move |gauge| {
                if let Some(ends) = self.present().ends {
                    gauge.observe(ends, &[]);
                }
            })
            .build();
    }

    /// Returns the current content of the files. May block on disk access.
    fn present(&self) -> Arc<Present> {
        self.present.get(|| self.files.read())
    }

    /// Performs the server's part of a handshake.
    ///
    /// # Errors
    ///
    /// The handshake fails or takes too long.
    pub(crate) async fn accept(self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let files = self.clone();
        let present = tokio::task::spawn_blocking(move || files.present())
            .await
            .map_err(io::Error::other)?;
        let mut config = Arc::clone(&present.config);
        if self.http1 {
            Arc::make_mut(&mut config).alpn_protocols.push(HTTP1.to_vec());
        }
        let acceptor = TlsAcceptor::from(config);
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
            // Session resumption would accept a client certificate without verifying it again.
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

/// Returns the verified certificate of the peer.
pub(crate) fn peer_certificate(stream: &TlsStream<TcpStream>) -> Option<&CertificateDer<'static>> {
    stream.get_ref().1.peer_certificates()?.first()
}
