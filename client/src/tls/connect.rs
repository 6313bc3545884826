//! Channels for URLs, over TLS for `https`.

use std::{
    future::Future,
    io,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, RootCertStore, pki_types::ServerName},
};
use tonic::transport::{Channel, Endpoint, Error};
use tower::Service;

use super::{ALPN, TlsError, authorities, certificates, key, provider};
use crate::host::bare_host;

/// The default port of `https` URLs.
const HTTPS_PORT: u16 = 443;

/// The TLS files of a client. By default a client trusts the public authorities and presents no certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The authorities of server certificates, instead of the public ones.
    pub authorities: Option<PathBuf>,
    /// The client's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Connects to the endpoint now. The channel reconnects when the connection is lost.
///
/// # Errors
///
/// The server is not reachable or its certificate is not trusted.
pub async fn connect(endpoint: Endpoint, files: &ClientFiles) -> Result<Channel, Error> {
    match Connector::to(&endpoint, files) {
        Some(connector) => endpoint.connect_with_connector(connector).await,
        None => endpoint.connect().await,
    }
}

/// Returns a channel that connects on first use. See [`connect`].
#[must_use]
pub fn channel(endpoint: &Endpoint, files: &ClientFiles) -> Channel {
    channels(endpoint, files)()
}

/// Returns a channel to a server whose certificate has this name instead of the host in its URL.
#[must_use]
pub fn channel_to(endpoint: &Endpoint, files: &ClientFiles, server_name: &str) -> Channel {
    match Connector::to(endpoint, files) {
        Some(connector) => endpoint.connect_with_connector_lazy(Connector {
            server_name: Some(Arc::from(server_name)),
            ..connector
        }),
        None => endpoint.connect_lazy(),
    }
}

/// Returns a function that creates channels that connect on first use. The channels share the last valid content of the
/// files.
pub fn channels(endpoint: &Endpoint, files: &ClientFiles) -> impl Fn() -> Channel + use<> {
    let (endpoint, connector) = (endpoint.clone(), Connector::to(endpoint, files));
    move || match &connector {
        Some(connector) => endpoint.connect_with_connector_lazy(connector.clone()),
        None => endpoint.connect_lazy(),
    }
}

/// Connects to a server over TLS and reads the files for each connection. The connector of tonic reads files only once.
#[derive(Clone, Debug)]
struct Connector {
    files: Arc<ClientFiles>,
    /// The name in the server's certificate, instead of the host of the URL.
    server_name: Option<Arc<str>>,
    /// The last valid configuration.
    previous: Arc<Mutex<Option<Arc<ClientConfig>>>>,
}

impl Connector {
    /// Returns `None` if the endpoint does not use TLS.
    fn to(endpoint: &Endpoint, files: &ClientFiles) -> Option<Self> {
        (endpoint.uri().scheme_str() == Some("https")).then(|| Self {
            files: Arc::new(files.clone()),
            server_name: None,
            previous: Arc::default(),
        })
    }

    /// Reads the configuration. Returns the previous one while the files are invalid, for example when only one of them
    /// has been replaced.
    fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let mut previous = self.previous.lock().unwrap_or_else(PoisonError::into_inner);
        match (self.files.config(ALPN), &*previous) {
            (Ok(config), _) => Ok(Arc::clone(previous.insert(Arc::new(config)))),
            (Err(error), Some(previous)) => {
                tracing::warn!(%error, "TLS files are invalid; using the previous content");
                Ok(Arc::clone(previous))
            }
            (Err(error), None) => Err(error),
        }
    }

    async fn open(self, server: Uri) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
        let host = bare_host(server.host().unwrap_or_default());
        let connector = self.clone();
        let config = tokio::task::spawn_blocking(move || connector.config());
        let config = config.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        let name = self.server_name.as_deref().unwrap_or(host);
        let stream = connection(config, name, host, server.port_u16()).await?;
        if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
            return Err(io::Error::other("the server does not support HTTP/2 over TLS"));
        }
        Ok(TokioIo::new(stream))
    }
}

/// Opens a TLS connection for HTTP/1.1.
///
/// # Errors
///
/// The files are invalid, the server is not reachable, or its certificate is not trusted.
pub async fn http_connection(files: &ClientFiles, host: &str, port: Option<u16>) -> io::Result<TlsStream<TcpStream>> {
    let files = files.clone();
    let config = tokio::task::spawn_blocking(move || files.config(b"http/1.1"));
    let config = config.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
    connection(Arc::new(config), host, host, port).await
}

async fn connection(
    config: Arc<ClientConfig>,
    name: &str,
    host: &str,
    port: Option<u16>,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect((host, port.unwrap_or(HTTPS_PORT))).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(config).connect(name, stream).await
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        Box::pin(self.clone().open(server))
    }
}

impl ClientFiles {
    /// Reads the files into a configuration for connections that are neither gRPC nor HTTP. The configuration offers no
    /// ALPN protocol.
    ///
    /// # Errors
    ///
    /// A file cannot be used.
    pub fn client_config(&self) -> Result<ClientConfig, TlsError> {
        let roots = match &self.authorities {
            Some(path) => authorities(path)?,
            None => RootCertStore {
                roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
            },
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unsupported)?
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, private)) => builder
                .with_client_auth_cert(certificates(certificate)?, key(private)?)
                .map_err(|cause| TlsError::Unusable {
                    path: certificate.clone(),
                    cause,
                })?,
        };
        Ok(config)
    }

    fn config(&self, protocol: &[u8]) -> Result<ClientConfig, TlsError> {
        let mut config = self.client_config()?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }
}
