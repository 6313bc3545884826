//! One attempt of a delivery: a new connection to a checked address, one request, the response status.

use std::{io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, Request, StatusCode,
    header::{CONNECTION, HOST, USER_AGENT},
};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
use tokio_util::task::AbortOnDropHandle;

use super::target::{NoAddress, Target};

/// Why an attempt of a delivery failed.
#[derive(Debug, thiserror::Error)]
pub enum Undelivered {
    /// The receiver has no usable address.
    #[error(transparent)]
    NoAddress(#[from] NoAddress),
    /// The connection or its TLS handshake failed.
    #[error("cannot connect: {0}")]
    Unconnected(#[from] io::Error),
    /// The host name is not valid for a certificate.
    #[error("the host name is not valid in a certificate")]
    NoName,
    /// The request could not be built.
    #[error("cannot build the request: {0}")]
    Request(#[from] http::Error),
    /// The connection broke, or the response is not valid HTTP.
    #[error("the exchange failed: {0}")]
    Exchange(#[from] hyper::Error),
    /// The response status is not 2xx. Redirects are not followed.
    #[error("the response status is {0}")]
    Refused(StatusCode),
    /// The attempt timed out.
    #[error("no response within {0:?}")]
    TimedOut(Duration),
}

/// Sends deliveries.
#[derive(Clone)]
pub struct Poster {
    /// The TLS connector, which trusts the authorities of the targets' certificates.
    pub tls: TlsConnector,
    /// Whether private, loopback and link-local addresses are permitted.
    pub allow_private: bool,
    /// Maximum time of one attempt, including name resolution and connecting.
    pub within: Duration,
}

impl Poster {
    /// Makes one attempt. The request has these headers in addition to those of every delivery.
    ///
    /// # Errors
    ///
    /// [`Undelivered`]: only a response with a status of 2xx counts as a delivery.
    pub async fn post(&self, target: &Target, headers: HeaderMap, body: Bytes) -> Result<(), Undelivered> {
        match timeout(self.within, self.attempt(target, headers, body)).await {
            Ok(Ok(status)) if status.is_success() => Ok(()),
            Ok(Ok(status)) => Err(Undelivered::Refused(status)),
            Ok(Err(undelivered)) => Err(undelivered),
            Err(_) => Err(Undelivered::TimedOut(self.within)),
        }
    }

    async fn attempt(&self, target: &Target, headers: HeaderMap, body: Bytes) -> Result<StatusCode, Undelivered> {
        let ends = Instant::now() + self.within;
        let mut request = Request::post(target.path())
            .header(HOST, target.authority())
            .header(USER_AGENT, concat!("troupe/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, "close")
            .body(Full::new(body))?;
        request.headers_mut().extend(headers);
        let addresses = target.addresses(self.allow_private).await?;
        // Connects to a checked address and never resolves the name again: it may resolve to another address by now.
        let stream = first_connection(&addresses, ends, TcpStream::connect).await?;
        if target.is_https() {
            let name = ServerName::try_from(target.host().to_owned()).map_err(|_| Undelivered::NoName)?;
            Ok(exchange(self.tls.connect(name, stream).await?, request).await?)
        } else {
            Ok(exchange(stream, request).await?)
        }
    }
}

/// Connects to one address after the other until one accepts. Each address may take only its share of the remaining
/// time. Otherwise the addresses after an unresponsive one would never be tried.
async fn first_connection<S, C>(
    addresses: &[SocketAddr],
    ends: Instant,
    connect: impl Fn(SocketAddr) -> C,
) -> io::Result<S>
where
    C: Future<Output = io::Result<S>>,
{
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (waiting, address) in (1..=addresses.len()).rev().zip(addresses) {
        let left = ends.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(waiting).unwrap_or(u32::MAX);
        failure = match timeout(share, connect(*address)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(failure)) => failure,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
    }
    Err(failure)
}

/// Sends the request and returns the response status. The body of the response is irrelevant and is not read.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<StatusCode, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    Ok(sender.send_request(request).await?.status())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silent_address_leaves_time_for_other_addresses() {
        let [silent, refusing, good] =
            ["192.0.2.1:443", "192.0.2.2:443", "192.0.2.3:443"].map(|text| text.parse::<SocketAddr>().unwrap());
        let connect = move |address: SocketAddr| async move {
            if address == silent {
                pending::<()>().await;
            }
            if address == refusing {
                return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
            }
            Ok(address)
        };
        let ends = Instant::now() + Duration::from_secs(10);
        let connected = first_connection(&[silent, refusing, good], ends, connect).await;
        assert_eq!(connected.unwrap(), good);
        assert!(Instant::now() < ends, "time is left for the request");

        let failure = first_connection(&[refusing, silent], ends, connect).await.unwrap_err();
        assert_eq!(failure.kind(), io::ErrorKind::TimedOut);
        assert!(Instant::now() >= ends, "the last address has all the time that is left");
    }
}
