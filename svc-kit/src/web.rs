//! A port for HTTP/1.1 and HTTP/2 that checks its callers by itself, such as a port that serves both gRPC and JSON over
//! HTTP. Only connections are bounded here; the routes bound their calls.

use std::{io, time::Duration};

use axum::{Router, http::Extensions};
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tonic::{service::Routes, transport};
use tonic_health::ServingStatus;

use crate::{
    connection::{Listener, PREFACE_WITHIN, Rules, accept},
    peer::Peer,
    serve::{announce, builder},
    serve_limits::ServeLimits,
    shutdown::Shutdown,
    usage::{Bounds, OpenCall},
};

/// Maximum number of concurrent calls on one connection.
const MAX_STREAMS: u32 = 256;

/// A call from an authenticated caller. While it is held, its connection is not closed for another one.
#[derive(Debug)]
pub struct KnownCall {
    _call: Option<OpenCall>,
}

impl KnownCall {
    /// Records that the request with these extensions is from an authenticated caller.
    #[must_use]
    pub fn begin(extensions: &Extensions) -> Self {
        let call = extensions.get::<Peer>().map(|peer| {
            peer.usage.mark_known();
            peer.usage.begin(true)
        });
        Self { _call: call }
    }
}

/// Why the port is not served.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The listener has no local address.
    #[error("the listener has no address: {0}")]
    Listener(#[from] io::Error),
    /// The transport failed.
    #[error("serving failed: {0}")]
    Transport(#[from] transport::Error),
}

/// Serves until `shutdown` is triggered. Then streams have to end at [`Shutdown::draining`], and remaining connections
/// are closed after [`ServeLimits::drain`].
///
/// # Errors
///
/// The listener or the transport fails.
pub async fn serve(
    listener: impl Into<Listener>,
    router: Router,
    limits: ServeLimits,
    shutdown: Shutdown,
) -> Result<(), WebError> {
    let listener = listener.into();
    let url = listener.url()?;
    let reporters: Vec<_> = listener.reporter().into_iter().collect();
    let cut = CancellationToken::new();
    let rules = Rules {
        bounds: Bounds {
            total: limits.max_connections,
            per_address: limits.max_connections_per_address,
        },
        greeted_within: PREFACE_WITHIN,
        known_within: None,
    };
    let incoming = accept(listener, rules, cut.clone());
    let close = CancellationToken::new();
    tracing::info!(url, "serving");
    announce(&reporters, &[], ServingStatus::Serving).await;
    let mut server = Box::pin(
        builder(&limits)
            .accept_http1(true)
            .max_concurrent_streams(MAX_STREAMS)
            .add_routes(Routes::from(router))
            .serve_with_incoming_shutdown(incoming, close.clone().cancelled_owned()),
    );
    let ended = tokio::select! {
        ended = &mut server => ended,
        () = shutdown.triggered() => {
            announce(&reporters, &[], ServingStatus::NotServing).await;
            shutdown.start_draining();
            close.cancel();
            let deadline = shutdown.deadline(limits.drain.min(MAX_DRAIN));
            timeout_at(deadline, &mut server).await.unwrap_or(Ok(()))
        }
    };
    // Each connection runs in its own task, which does not end with the server's future.
    cut.cancel();
    Ok(ended?)
}

/// Maximum time that the shutdown waits for responses in progress. If a connection has never sent a request, the
/// shutdown waits for this whole time.
const MAX_DRAIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use axum::{extract::Request, routing::get};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[tokio::test]
    async fn requests_name_their_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route(
            "/",
            get(
                |request: Request| async move { format!("{}", KnownCall::begin(request.extensions())._call.is_some()) },
            ),
        );
        let shutdown = Shutdown::new();
        let serving = tokio::spawn(serve(listener, router, ServeLimits::default(), shutdown.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.ends_with("true"), "{response}");
        shutdown.trigger();
        serving.await.unwrap().unwrap();
    }
}
