//! HTTP/1.1 requests. Each request uses its own connection.

use std::{io, time::Duration};

use http::{Request, Response, Uri};
use hyper::{
    body::{Body, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use troupe_client::{
    host::bare_host,
    tls::{ClientFiles, http_connection},
};

/// Maximum time to establish a connection, including TLS.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// The request was not sent.
    #[error("{0}")]
    Unconnected(String),
    /// The request may have been received.
    #[error("{0}")]
    Lost(String),
}

/// Sends a request to the server of an `http` or `https` URL, and returns the head of the response. Redirects are not
/// followed.
///
/// # Errors
///
/// See [`ExchangeError`].
pub(crate) async fn exchange<B>(
    server: &Uri,
    files: &ClientFiles,
    request: Request<B>,
) -> Result<Response<Incoming>, ExchangeError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let host = bare_host(server.host().unwrap_or_default());
    let port = server.port_u16();
    let connecting = async {
        if server.scheme_str() == Some("https") {
            return Ok::<_, io::Error>(Connection::Tls(http_connection(files, host, port).await?));
        }
        let stream = TcpStream::connect((host, port.unwrap_or(80))).await?;
        stream.set_nodelay(true)?;
        Ok(Connection::Plain(stream))
    };
    let connection = timeout(CONNECT_TIMEOUT, connecting)
        .await
        .map_err(|_| ExchangeError::Unconnected(format!("no connection within {CONNECT_TIMEOUT:?}")))?
        .map_err(|error| ExchangeError::Unconnected(error.to_string()))?;
    match connection {
        Connection::Plain(stream) => send(stream, request).await,
        Connection::Tls(stream) => send(stream, request).await,
    }
}

enum Connection<T> {
    Plain(TcpStream),
    Tls(T),
}

async fn send<S, B>(stream: S, request: Request<B>) -> Result<Response<Incoming>, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| ExchangeError::Unconnected(error.to_string()))?;
    // The task ends with the response's body, or when the response is dropped.
    tokio::spawn(connection);
    let sent = sender.send_request(request).await;
    sent.map_err(|error| ExchangeError::Lost(error.to_string()))
}
