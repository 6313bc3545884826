//! The HTTP port: bounded connections, slow clients and a graceful end.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use futures::StreamExt as _;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    time::{sleep, timeout},
};
use tonic::transport::server::TcpIncoming;

use super::pages::Console;

/// Maximum number of connections. A browser opens up to six connections to a server.
const MAX_CONNECTIONS: usize = 256;
/// Maximum time from the start of a connection, or from the last response, to the end of the next request's head.
const HEAD_WITHIN: Duration = Duration::from_secs(20);
/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;
/// Maximum size of a request's head.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Maximum size of the buffer of a connection in each direction.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// Idle time after which the kernel probes a connection, because the streams of a crashed browser would stay open.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);
/// Pause after a failed accept. It prevents a busy loop when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Maximum time for the responses in progress to complete when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until `stop` completes, then closes the connections. `stop` has to end the streams before it completes.
pub(super) async fn serve(listener: TcpListener, console: Arc<Console>, stop: impl Future<Output = ()>) {
    let mut incoming = TcpIncoming::from(listener)
        .with_nodelay(Some(true))
        .with_keepalive(Some(TCP_KEEPALIVE));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_BUFFER_BYTES);
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = incoming.next() => accepted,
        };
        let stream = match accepted {
            Some(Ok(stream)) => stream,
            Some(Err(_)) => {
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
            None => break,
        };
        // At the maximum, a new connection is closed at once.
        let Ok(permit) = Arc::clone(&free).try_acquire_owned() else {
            continue;
        };
        let console = Arc::clone(&console);
        let respond = service_fn(move |request| {
            let console = Arc::clone(&console);
            async move { Ok::<_, Infallible>(console.respond(request).await) }
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), respond));
        tokio::spawn(async move {
            // An error ends this connection only.
            let _ = connection.await;
            drop(permit);
        });
    }
    let _ = timeout(STOP_TIMEOUT, graceful.shutdown()).await;
}
