//! The connections of a server: bounded in number, and cut off when the drain's deadline has passed.
//!
//! tonic gives each connection a task of its own and forgets it; a peer that never finishes the HTTP/2 preface would
//! keep that task for ever. Here the transport itself fails once the server is cut, which ends the task.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, StreamExt as _, stream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo, TcpIncoming};

/// After this much silence the kernel asks a peer whether it is still there.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);
/// What accepting waits after an error, so that running out of file descriptors does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The connections that a listener accepts, at most `limit` at once; more wait in the kernel's backlog.
pub(crate) fn accept(
    listener: TcpListener,
    limit: usize,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> {
    let incoming = TcpIncoming::from(listener)
        .with_nodelay(Some(true))
        .with_keepalive(Some(TCP_KEEPALIVE));
    let places = Arc::new(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS)));
    stream::unfold((incoming, places, cut), |(mut incoming, places, cut)| async move {
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        let accepted = match incoming.next().await? {
            Ok(io) => Ok(Connection {
                io,
                cut: Box::pin(cut.child_token().cancelled_owned()),
                _place: place,
            }),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                Err(error)
            }
        };
        Some((accepted, (incoming, places, cut)))
    })
}

/// A TCP connection that fails once the server is cut off.
pub(crate) struct Connection {
    io: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _place: OwnedSemaphorePermit,
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

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.io.connect_info()
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
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
