//! The connections of a server: bounded in number, over TLS where the listener has it, and cut off when the drain's deadline
//! has passed.
//!
//! tonic gives each connection a task of its own and forgets it; a peer that never finishes the HTTP/2 preface would
//! keep that task for ever. Here the transport itself fails once the server is cut, which ends the task.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, StreamExt as _, future, stream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};
use tokio_rustls::server::TlsStream;
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::AbortOnDropHandle,
};
use tonic::transport::server::{Connected, TcpIncoming};
use tonic_health::server::HealthReporter;

use crate::{
    admin::Admin,
    bounded::Bounded,
    listen::reachable,
    peer::{self, Peer},
    tls::{self, ServerTls},
};

/// After this much silence the kernel asks a peer whether it is still there.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);
/// How long the first bytes of a connection may take.
pub(crate) const PREFACE_WITHIN: Duration = Duration::from_secs(10);
/// How many these are: the preface of HTTP/2. No request of HTTP/1.1 that is answered here is shorter.
const PREFACE_BYTES: usize = 24;
/// What accepting waits after an error, so that running out of file descriptors does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Where a server listens, whether over TLS, who else is told of its health, and whether it says what methods it has.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<ServerTls>,
    told: Option<HealthReporter>,
    reflects: bool,
}

impl Listener {
    /// A listener over TLS; `None`: over plain TCP.
    #[must_use]
    pub const fn new(tcp: TcpListener, tls: Option<ServerTls>) -> Self {
        Self {
            tcp,
            tls,
            told: None,
            reflects: true,
        }
    }

    /// The same, whose server tells the admin port how it is, if there is one.
    #[must_use]
    pub fn tells(self, admin: Option<&Admin>) -> Self {
        Self {
            told: admin.map(Admin::reporter),
            ..self
        }
    }

    /// The same, whose server says what methods it has, or does not.
    #[must_use]
    pub fn reflects(self, reflects: bool) -> Self {
        Self { reflects, ..self }
    }

    /// Whether its server says what methods it has.
    pub(crate) const fn is_reflecting(&self) -> bool {
        self.reflects
    }

    /// Who is told of the server's health beside its own clients.
    pub(crate) fn told(&self) -> Option<HealthReporter> {
        self.told.clone()
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// The URL at which it is reached from this machine.
    ///
    /// # Errors
    ///
    /// As [`Self::local_addr`].
    pub fn url(&self) -> io::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}", reachable(self.local_addr()?)))
    }
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Self {
        Self::new(tcp, None)
    }
}

/// The connections that a listener accepts, at most `limit` at once; more wait in the kernel's backlog. Handshakes count
/// too, and none waits for another's. Each has to begin to speak within `greeted_within`.
pub(crate) fn accept(
    listener: Listener,
    limit: usize,
    greeted_within: Duration,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> {
    let Listener {
        tcp,
        tls,
        told: _,
        reflects: _,
    } = listener;
    let incoming = TcpIncoming::from(tcp)
        .with_nodelay(Some(true))
        .with_keepalive(Some(TCP_KEEPALIVE));
    let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
    let places = Arc::new(Semaphore::new(limit));
    let failures = Arc::<Bounded>::default();
    let accepted = stream::unfold((incoming, places), |(mut incoming, places)| async move {
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        let accepted = match incoming.next().await? {
            Ok(tcp) => Ok((tcp, place)),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                Err(error)
            }
        };
        Some((accepted, (incoming, places)))
    });
    accepted
        .map(move |accepted| {
            open(
                accepted,
                tls.clone(),
                Arc::clone(&failures),
                greeted_within,
                cut.clone(),
            )
        })
        .buffer_unordered(limit)
        .filter_map(future::ready)
}

/// `None`: there is no connection after all, and nothing is wrong with the server.
async fn open(
    accepted: io::Result<(TcpStream, OwnedSemaphorePermit)>,
    tls: Option<ServerTls>,
    failures: Arc<Bounded>,
    greeted_within: Duration,
    cut: CancellationToken,
) -> Option<io::Result<Connection>> {
    let (tcp, place) = match accepted {
        Ok(accepted) => accepted,
        Err(error) => return Some(Err(error)),
    };
    let io = match tls {
        None => Transport::Plain(tcp),
        Some(tls) => {
            let address = tcp.peer_addr().ok();
            // A task of its own: its cryptography is not to wait for that of others.
            match AbortOnDropHandle::new(tokio::spawn(tls.accept(tcp))).await {
                Ok(Ok(stream)) => Transport::Tls(Box::new(stream)),
                Ok(Err(error)) => {
                    failures.write(|passed_over| {
                        tracing::info!(peer = address.map(display), %error, passed_over, "a TLS handshake failed");
                    });
                    return None;
                }
                Err(defect) => {
                    tracing::error!(?address, %defect, "a TLS handshake broke off");
                    return None;
                }
            }
        }
    };
    Some(Ok(Connection {
        peer: io.peer(),
        io,
        greeting: Some(Greeting {
            missing: PREFACE_BYTES,
            head: Head::Before,
            late: Box::pin(sleep(greeted_within)),
        }),
        cut: Box::pin(cut.cancelled_owned()),
        _place: place,
    }))
}

/// A connection that fails once the server is cut off, and if its peer does not begin to speak.
pub(crate) struct Connection {
    io: Transport,
    peer: Peer,
    greeting: Option<Greeting>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _place: OwnedSemaphorePermit,
}

/// The first bytes of a connection, which HTTP/2 has no time limit of its own for: pings come only after them; nor has
/// HTTP/1.1 one that could be set here. Both begin with lines up to an empty one: a part of the preface, or the head of a
/// request.
struct Greeting {
    missing: usize,
    head: Head,
    late: Pin<Box<Sleep>>,
}

/// How far those lines have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// Nothing but line breaks, which do not count.
    Before,
    /// Within a line.
    InLine,
    /// At the beginning of a line.
    AtLine,
    /// The empty line is there.
    Whole,
}

impl Head {
    const fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Whole, _) | (Self::AtLine, b'\n') => Self::Whole,
            (Self::Before, b'\r' | b'\n') => Self::Before,
            (Self::AtLine, b'\r') | (Self::InLine, b'\n') => Self::AtLine,
            (Self::Before | Self::InLine | Self::AtLine, _) => Self::InLine,
        }
    }
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    fn peer(&self) -> Peer {
        match self {
            Self::Plain(tcp) => Peer {
                address: tcp.peer_addr().ok(),
                principal: None,
            },
            Self::Tls(stream) => Peer {
                address: stream.get_ref().0.peer_addr().ok(),
                principal: tls::shown(stream).and_then(peer::named_by).map(Arc::new),
            },
        }
    }
}

impl Connection {
    fn poll_cut(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the server has stopped",
            )),
            Poll::Pending => Ok(()),
        }
    }
}

impl Connection {
    /// These bytes have come; fails if the first ones are late.
    fn greeted(&mut self, bytes: &[u8], context: &mut Context<'_>) -> io::Result<()> {
        let Some(greeting) = &mut self.greeting else {
            return Ok(());
        };
        greeting.missing = greeting.missing.saturating_sub(bytes.len());
        greeting.head = bytes.iter().fold(greeting.head, |head, byte| head.after(*byte));
        if greeting.missing == 0 && greeting.head == Head::Whole {
            self.greeting = None;
        } else if greeting.late.as_mut().poll(context).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A connection always has a read pending, so being cut wakes it here.
        self.poll_cut(context)?;
        let before = buffer.filled().len();
        let read = match &mut self.io {
            Transport::Plain(tcp) => Pin::new(tcp).poll_read(context, buffer),
            Transport::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        self.greeted(buffer.filled().get(before..).unwrap_or_default(), context)?;
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Transport::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Transport::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Transport::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Transport::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Transport::Plain(tcp) => Pin::new(tcp).poll_write_vectored(context, slices),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Transport::Plain(tcp) => tcp.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_with_an_empty_line() {
        for (said, is_whole) in [
            ("", false),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n", false),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r", false),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", true),
            ("GET /metrics HTTP/1.1\nHost: a\n\n", true),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\nmore", true),
            ("\r\n\r\n\r\n\r\n", false),
            ("\r\nGET / HTTP/1.1\r\n\r\n", true),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true),
        ] {
            let head = said.bytes().fold(Head::Before, Head::after);
            assert_eq!(head == Head::Whole, is_whole, "{said:?}");
        }
    }
}
