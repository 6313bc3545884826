//! WatchThreads as it is served: its messages are encoded once for all watchers.

use std::{future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use svc_kit::encoded::{EncodedCodec, EncodedMethod, ResponseFuture};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::http,
    server::{Grpc, ServerStreamingService},
};
use troupe_proto::{MAX_MESSAGE_BYTES, supervisor::v1 as pb};

/// The messages of one watch.
pub type Messages = ReceiverStream<Result<Bytes, Status>>;

/// Begins watches.
#[tonic::async_trait]
pub trait BeginWatch: Send + Sync + 'static {
    /// Returns the message stream of the requested watch.
    ///
    /// # Errors
    /// The reason why the watch cannot begin.
    async fn begin_watch(&self, request: Request<pb::WatchThreadsRequest>) -> Result<Messages, Status>;
}

/// The method WatchThreads.
pub struct WatchMethod<W>(Arc<W>);

impl<W> WatchMethod<W> {
    /// The method over who begins watches.
    pub const fn new(watches: Arc<W>) -> Self {
        Self(watches)
    }
}

impl<W> Clone for WatchMethod<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: BeginWatch> EncodedMethod for WatchMethod<W> {
    const PATH: &'static str = "/troupe.supervisor.v1.AgentSupervisorService/WatchThreads";

    fn call(&self, request: http::Request<Body>) -> ResponseFuture {
        let method = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(EncodedCodec::default())
                .apply_max_message_size_config(Some(MAX_MESSAGE_BYTES), Some(MAX_MESSAGE_BYTES));
            Ok(grpc.server_streaming(method, request).await)
        })
    }
}

impl<W: BeginWatch> ServerStreamingService<pb::WatchThreadsRequest> for WatchMethod<W> {
    type Response = Bytes;
    type ResponseStream = Messages;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Messages>, Status>> + Send>>;

    fn call(&mut self, request: Request<pb::WatchThreadsRequest>) -> Self::Future {
        let watches = Arc::clone(&self.0);
        Box::pin(async move { watches.begin_watch(request).await.map(Response::new) })
    }
}
