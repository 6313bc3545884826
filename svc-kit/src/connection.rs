//! The connections of a server. Their number is bounded, and they use TLS if the listener has it. With authentication,
//! a connection ends if no authenticated caller has used it within a time limit. All connections are cut off when the
//! drain deadline has passed.
//!
//! tonic gives each connection a task of its own and does not track it; a peer that never finishes the HTTP/2 preface
//! would keep that task forever. Therefore the transport itself ends here, or fails after the drain deadline. Either
//! ends the task.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, StreamExt as _, future, stream};
use rustix::io::Errno;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::{Instant, Sleep, sleep, sleep_until},
};
use tokio_rustls::server::TlsStream;
use tokio_util::{
    either::Either,
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::AbortOnDropHandle,
};
use tonic::transport::server::{Connected, TcpIncoming};
use tonic_health::server::HealthReporter;

use crate::{
    bounded::Bounded,
    listen::reachable,
    peer::{self, Peer},
    tls::{self, ServerTls},
    usage::{Bounds, Connections, Registration},
};

/// Idle time after which the kernel probes the peer.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);
/// Time limit for the first bytes of a connection.
pub(crate) const PREFACE_WITHIN: Duration = Duration::from_secs(10);
/// Length of the HTTP/2 preface. No HTTP/1.1 request that this server answers is shorter.
const PREFACE_BYTES: usize = 24;
/// Pause after a failed accept. It prevents a busy loop when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Errors of the operating system when the process or the machine has no file descriptors left.
const NO_DESCRIPTORS: &[Errno] = &[Errno::MFILE, Errno::NFILE];
/// An HTTP/2 frame that tells a client to use another connection: GOAWAY (type 7, 8 bytes of payload) on stream 0, with
/// the highest possible last stream id, so no stream is refused, and NO_ERROR.
const GO_AWAY: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Bounds and time limits of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Maximum number of connections.
    pub bounds: Bounds,
    /// Time limit for the first bytes.
    pub greeted_within: Duration,
    /// Time limits for the first call of an authenticated caller. `None` if the port has no authentication and also
    /// accepts HTTP/1.1.
    pub known_within: Option<KnownWithin>,
}

/// Maximum age of a connection on which no authenticated caller has called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownWithin {
    /// The limit while no health watch or reflection call is open.
    pub idle: Duration,
    /// The limit while a health watch or a reflection call is open.
    pub open: Duration,
}

/// The listening socket of a server, with its TLS, an additional health reporter, and whether the server offers
/// reflection.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<ServerTls>,
    reporter: Option<HealthReporter>,
    reflects: bool,
}

impl Listener {
    /// Creates a listener over TLS, or over plain TCP if `tls` is `None`.
    #[must_use]
    pub const fn new(tcp: TcpListener, tls: Option<ServerTls>) -> Self {
        Self {
            tcp,
            tls,
            reporter: None,
            reflects: true,
        }
    }

    /// Makes the server report its health to the admin port, if enabled. See [`crate::admin::Admin::reporter`].
    #[must_use]
    pub fn report_health_to(self, reporter: Option<HealthReporter>) -> Self {
        Self { reporter, ..self }
    }

    /// Sets whether the server offers reflection.
    #[must_use]
    pub fn reflects(self, reflects: bool) -> Self {
        Self { reflects, ..self }
    }

    /// Returns whether the server offers reflection.
    pub(crate) const fn is_reflecting(&self) -> bool {
        self.reflects
    }

    /// Returns the health reporter of the admin port. The server reports its health to this reporter in addition to its
    /// own clients.
    pub(crate) fn reporter(&self) -> Option<HealthReporter> {
        self.reporter.clone()
    }

    /// Returns the listening address.
    ///
    /// # Errors
    ///
    /// If the operating system reports an error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Returns the URL that reaches the listener from this machine.
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

/// Accepts the connections of a listener. Handshakes count as connections and run concurrently. At the maximum, a
/// connection without an authenticated caller or an idle connection is closed for the new one. The new connection is
/// closed at once only if all connections are busy.
pub(crate) fn accept(
    listener: Listener,
    rules: Rules,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> {
    let Listener {
        tcp,
        tls,
        reporter: _,
        reflects: _,
    } = listener;
    let incoming = TcpIncoming::from(tcp)
        .with_nodelay(Some(true))
        .with_keepalive(Some(TCP_KEEPALIVE));
    // One more than the maximum number of connections: a new connection can be accepted while it ends the oldest
    // handshake.
    let handshakes = rules.bounds.total.saturating_add(1);
    let accept_loop = Arc::new(AcceptLoop {
        rules,
        tls,
        cut,
        connections: Connections::new(rules.bounds),
        failures: Bounded::default(),
        refusals: Bounded::default(),
    });
    let accepted = stream::unfold(
        (incoming, Arc::clone(&accept_loop)),
        |(mut incoming, accept_loop)| async move {
            let accepted = incoming.next().await?;
            if let Err(error) = &accepted {
                tracing::warn!(%error, "accept failed");
                if NO_DESCRIPTORS
                    .iter()
                    .any(|none| error.raw_os_error() == Some(none.raw_os_error()))
                {
                    accept_loop.connections.close_one();
                }
                sleep(ACCEPT_PAUSE).await;
            }
            Some((accepted, (incoming, accept_loop)))
        },
    );
    accepted
        .map(move |accepted| Arc::clone(&accept_loop).establish(accepted))
        .buffer_unordered(handshakes)
        .filter_map(future::ready)
}

/// State of the accept loop.
struct AcceptLoop {
    rules: Rules,
    tls: Option<ServerTls>,
    cut: CancellationToken,
    connections: Arc<Connections>,
    /// Rate limit of log lines about failed handshakes.
    failures: Bounded,
    /// Rate limit of log lines about connections beyond the maximum.
    refusals: Bounded,
}

impl AcceptLoop {
    /// Registers a connection and performs its handshake. Returns `None` if there is no usable connection, which is not
    /// an error of the server.
    async fn establish(self: Arc<Self>, accepted: io::Result<TcpStream>) -> Option<io::Result<Connection>> {
        let tcp = match accepted {
            Ok(tcp) => tcp,
            Err(error) => return Some(Err(error)),
        };
        let begun = Instant::now();
        let address = tcp.peer_addr().ok();
        let end = self.cut.child_token();
        let Some(membership) = self.connections.admit(address.map(|address| address.ip()), end.clone()) else {
            self.refusals.write(|passed_over| {
                tracing::warn!(
                    peer = address.map(display),
                    passed_over,
                    "connection rejected: all connections are busy"
                );
            });
            return None;
        };
        let io = match &self.tls {
            None => Either::Left(tcp),
            // A separate task, so that the cryptography of one handshake does not delay others.
            Some(tls) => {
                let handshake = AbortOnDropHandle::new(tokio::spawn(tls.clone().accept(tcp)));
                match end.run_until_cancelled(handshake).await? {
                    Ok(Ok(stream)) => Either::Right(Box::new(stream)),
                    Ok(Err(error)) => {
                        self.failures.write(|passed_over| {
                            tracing::info!(peer = address.map(display), %error, passed_over, "TLS handshake failed");
                        });
                        return None;
                    }
                    Err(defect) => {
                        tracing::error!(?address, %defect, "TLS handshake panicked");
                        return None;
                    }
                }
            }
        };
        Some(Ok(Connection {
            peer: Peer {
                usage: membership.usage(),
                ..peer_of(&io)
            },
            io,
            greeting: Some(Greeting {
                missing: PREFACE_BYTES,
                head: Head::Before,
                late: Box::pin(sleep(self.rules.greeted_within)),
            }),
            unknown: self.rules.known_within.map(|within| Unknown {
                late: Box::pin(sleep_until(begun + within.idle)),
                last: begun + within.open,
            }),
            last_bytes: if self.rules.known_within.is_some() {
                GO_AWAY
            } else {
                &[]
            },
            cut: self.cut.clone(),
            end: Box::pin(end.cancelled_owned()),
            has_ended: false,
            membership,
        }))
    }
}

/// A connection. It ends if it is closed for another one, or if no authenticated caller uses it in time. It fails after
/// the drain deadline of the server, or if its first bytes are late.
pub(crate) struct Connection {
    io: Transport,
    peer: Peer,
    greeting: Option<Greeting>,
    /// Set until an authenticated caller has called.
    unknown: Option<Unknown>,
    /// The bytes to send when the connection ends.
    last_bytes: &'static [u8],
    cut: CancellationToken,
    /// Fires after the drain deadline of the server, or when the connection is closed for another one.
    end: Pin<Box<WaitForCancellationFutureOwned>>,
    has_ended: bool,
    membership: Registration,
}

/// Time limits of a connection without an authenticated caller.
struct Unknown {
    late: Pin<Box<Sleep>>,
    /// The final limit, which applies even while health is watched.
    last: Instant,
}

/// The progress of a connection's first bytes. HTTP/2 has no time limit for these bytes, because its pings start later,
/// and the time limit of HTTP/1.1 cannot be set here. Both protocols begin with lines up to an empty line: in HTTP/2 a
/// part of the preface, in HTTP/1.1 the head of a request.
struct Greeting {
    missing: usize,
    head: Head,
    late: Pin<Box<Sleep>>,
}

/// The progress within these lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// Only line breaks so far, which are ignored.
    Before,
    /// Within a line.
    InLine,
    /// At the beginning of a line.
    AtLine,
    /// The empty line has arrived.
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

/// A connection without or with TLS.
type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

fn peer_of(transport: &Transport) -> Peer {
    match transport {
        Either::Left(tcp) => Peer {
            address: tcp.peer_addr().ok(),
            ..Peer::default()
        },
        Either::Right(stream) => Peer {
            address: stream.get_ref().0.peer_addr().ok(),
            principal: tls::peer_certificate(stream).and_then(peer::named_by).map(Arc::new),
            ..Peer::default()
        },
    }
}

impl Connection {
    /// Returns whether the connection ends now. Fails after the drain deadline of the server.
    fn has_ended(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        if self.has_ended {
            return Ok(true);
        }
        if self.end.as_mut().poll(context).is_ready() {
            if self.cut.is_cancelled() {
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    "the server has stopped",
                ));
            }
            self.has_ended = true;
        }
        while let Some(unknown) = &mut self.unknown
            && unknown.late.as_mut().poll(context).is_ready()
        {
            if self.membership.is_known() {
                self.unknown = None;
            } else if self.membership.has_open_calls() && unknown.late.deadline() < unknown.last {
                let last = unknown.last;
                unknown.late.as_mut().reset(last);
            } else {
                self.has_ended = true;
                break;
            }
        }
        Ok(self.has_ended)
    }

    /// Returns `written`. Fails if the connection ends and its peer does not read.
    fn unless_ended<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() && self.has_ended(context)? {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
    }

    /// Tells the client of a connection that ends to use another one. The message is sent only after the first frames
    /// of client and server, and never within another frame.
    fn send_go_away(&mut self, context: &mut Context<'_>) {
        while self.has_ended && self.greeting.is_none() && !self.last_bytes.is_empty() {
            match Pin::new(&mut self.io).poll_write(context, self.last_bytes) {
                Poll::Ready(Ok(written)) if written > 0 => {
                    self.last_bytes = self.last_bytes.get(written..).unwrap_or_default();
                }
                _ => return,
            }
        }
    }
}

impl Connection {
    /// Records received bytes. Fails if the first bytes are late.
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
        // A connection always has a pending read or write, so its end wakes one of the two.
        if self.has_ended(context)? {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        self.greeted(buffer.filled().get(before..).unwrap_or_default(), context)?;
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.unless_ended(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.unless_ended(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send_go_away(context);
        let shut_down = Pin::new(&mut self.io).poll_shutdown(context);
        self.unless_ended(context, shut_down)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.unless_ended(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_ends_with_empty_line() {
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
