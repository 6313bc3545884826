//! WatchThreads beside the generated service, which could only send messages that it encodes itself.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{BoxFuture, Service, http},
    server::{Grpc, NamedService, ServerStreamingService},
};
use troupe_proto::{MAX_MESSAGE_BYTES, supervisor::v1 as pb};

use super::encoded::EncodedCodec;

/// The messages of one watch.
pub type Messages = ReceiverStream<Result<Bytes, Status>>;

/// Begins watches.
#[tonic::async_trait]
pub trait BeginWatch: Send + Sync + 'static {
    /// Answers the messages of the watch that is asked for.
    ///
    /// # Errors
    /// Why it cannot begin.
    async fn begin_watch(&self, request: Request<pb::WatchThreadsRequest>) -> Result<Messages, Status>;
}

/// A generated service with WatchThreads taken over.
pub struct WatchRoute<S, W> {
    service: S,
    watches: Arc<W>,
}

impl<S, W: BeginWatch> WatchRoute<S, W> {
    const PATH: &'static str = "/troupe.supervisor.v1.AgentSupervisorService/WatchThreads";

    /// Everything but WatchThreads goes to `service`.
    pub const fn new(service: S, watches: Arc<W>) -> Self {
        Self { service, watches }
    }
}

impl<S: Clone, W> Clone for WatchRoute<S, W> {
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
            watches: Arc::clone(&self.watches),
        }
    }
}

impl<S: NamedService, W> NamedService for WatchRoute<S, W> {
    const NAME: &'static str = S::NAME;
}

type Answer = BoxFuture<http::Response<Body>, Infallible>;

impl<S, W> Service<http::Request<Body>> for WatchRoute<S, W>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = Answer>,
    W: BeginWatch,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        if request.uri().path() != Self::PATH {
            return self.service.call(request);
        }
        let method = Watch(Arc::clone(&self.watches));
        Box::pin(async move {
            let mut grpc =
                Grpc::new(EncodedCodec).apply_max_message_size_config(Some(MAX_MESSAGE_BYTES), Some(MAX_MESSAGE_BYTES));
            Ok(grpc.server_streaming(method, request).await)
        })
    }
}

/// The method.
struct Watch<W>(Arc<W>);

impl<W: BeginWatch> ServerStreamingService<pb::WatchThreadsRequest> for Watch<W> {
    type Response = Bytes;
    type ResponseStream = Messages;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Messages>, Status>> + Send>>;

    fn call(&mut self, request: Request<pb::WatchThreadsRequest>) -> Self::Future {
        let watches = Arc::clone(&self.0);
        Box::pin(async move { watches.begin_watch(request).await.map(Response::new) })
    }
}
