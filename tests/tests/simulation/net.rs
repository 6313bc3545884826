//! gRPC over the simulated network.

use std::{
    io,
    net::Ipv4Addr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, stream};
use hyper_util::rt::TokioIo;
use svc_kit::peer::Peer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::{Channel, Endpoint, Uri, server::Connected};
use tower::service_fn;
use turmoil::net::{TcpListener, TcpStream};

/// The port of every service. Each service has its own host.
const PORT: u16 = 50_052;

/// Timeout of connecting.
const CONNECT_WITHIN: Duration = Duration::from_millis(300);

/// Interval and timeout of keepalive pings. Longer than the slowest round trip.
pub const KEEPALIVE: Duration = Duration::from_millis(250);

/// Returns the URL of the service on a host.
pub fn url(host: &str) -> String {
    format!("http://{host}:{PORT}")
}

/// Returns the host in the URL of a service.
pub fn host_of(url: &str) -> Option<&str> {
    url.strip_prefix("http://")?.split(':').next()
}

/// Returns a channel to a host. It connects on first use and after the connection is lost.
pub fn channel(host: &str) -> Channel {
    Endpoint::from_shared(url(host))
        .unwrap()
        .connect_timeout(CONNECT_WITHIN)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true)
        .connect_with_connector_lazy(service_fn(connect))
}

async fn connect(to: Uri) -> io::Result<TokioIo<TcpStream>> {
    let address = to.authority().expect("the URL of the channel has a host").as_str();
    TcpStream::connect(address).await.map(TokioIo::new)
}

/// Returns the connections to this host.
pub async fn accept() -> io::Result<impl Stream<Item = io::Result<Accepted>>> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
    Ok(stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| Accepted(stream));
        Some((accepted, listener))
    }))
}

/// An accepted connection.
pub struct Accepted(TcpStream);

impl Connected for Accepted {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer {
            address: self.0.peer_addr().ok(),
            ..Peer::default()
        }
    }
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
