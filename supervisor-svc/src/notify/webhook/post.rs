//! One attempt at one delivery: a connection of its own to an address that was looked at, one request, the status.

use std::time::Duration;

use bytes::Bytes;
use http::{
    Request, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT},
};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
use tokio_util::task::AbortOnDropHandle;

use super::{
    delivery::{Delivery, Signer},
    target::{NoAddress, Target},
};
use crate::clock::Clock;

/// Why a delivery was not accepted this time.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undelivered {
    /// It has no address to send to.
    #[error(transparent)]
    NoAddress(#[from] NoAddress),
    /// No connection, or none that can be trusted.
    #[error("it cannot be connected to: {0}")]
    Unconnected(#[from] std::io::Error),
    /// Its name is none that a certificate could be for.
    #[error("its name is none that a certificate could be for")]
    NoName,
    /// The request could not be put together.
    #[error("the request cannot be put together: {0}")]
    Request(#[from] http::Error),
    /// The connection broke, or what came was no HTTP.
    #[error("the exchange failed: {0}")]
    Exchange(#[from] hyper::Error),
    /// It answered something else than 2xx; redirects are not followed.
    #[error("it answered {0}")]
    Refused(StatusCode),
    /// It took too long.
    #[error("it did not answer within {0:?}")]
    TimedOut(Duration),
}

/// How a delivery is sent.
pub(super) struct Sending<'a> {
    pub tls: &'a TlsConnector,
    pub clock: &'a Clock,
    pub allow_private: bool,
    pub within: Duration,
}

impl Sending<'_> {
    /// Makes one attempt.
    pub async fn post(&self, target: &Target, signer: &Signer, delivery: &Delivery) -> Result<(), Undelivered> {
        match timeout(self.within, self.attempt(target, signer, delivery)).await {
            Ok(Ok(status)) if status.is_success() => Ok(()),
            Ok(Ok(status)) => Err(Undelivered::Refused(status)),
            Ok(Err(undelivered)) => Err(undelivered),
            Err(_) => Err(Undelivered::TimedOut(self.within)),
        }
    }

    async fn attempt(&self, target: &Target, signer: &Signer, delivery: &Delivery) -> Result<StatusCode, Undelivered> {
        let request = Request::post(target.path())
            .header(HOST, target.authority())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("troupe/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, "close")
            .header("troupe-delivery", &delivery.id)
            .header("troupe-signature", signer.sign(self.clock.now(), &delivery.body))
            .body(Full::new(delivery.body.clone()))?;
        let addresses = target.addresses(self.allow_private).await?;
        // To an address that was looked at, never to the name again: it may lead elsewhere by now.
        let stream = TcpStream::connect(addresses.as_slice()).await?;
        if target.is_https() {
            let name = ServerName::try_from(target.host().to_owned()).map_err(|_| Undelivered::NoName)?;
            Ok(exchange(self.tls.connect(name, stream).await?, request).await?)
        } else {
            Ok(exchange(stream, request).await?)
        }
    }
}

/// Sends the request and answers the status. The answer's body is not read: nothing in it would change what happens next.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<StatusCode, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    Ok(sender.send_request(request).await?.status())
}
