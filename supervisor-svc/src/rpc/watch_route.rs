//! WatchThreads as it is served: its messages are encoded once for all watchers.

use std::{future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use svc_kit::encoded::{EncodedCodec, EncodedMethod, ResponseFuture};
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::http,
    server::{Grpc, ServerStreamingService},
};
use troupe_proto::{MAX_MESSAGE_BYTES, supervisor::v1 as pb};

use super::{
    call::Call,
    service::SupervisorService,
    watch::{Messages, begin_watch},
};

/// The method WatchThreads.
#[derive(Clone)]
pub(crate) struct WatchMethod(pub(crate) Arc<SupervisorService>);

impl EncodedMethod for WatchMethod {
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

impl ServerStreamingService<pb::WatchThreadsRequest> for WatchMethod {
    type Response = Bytes;
    type ResponseStream = Messages;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Messages>, Status>> + Send>>;

    fn call(&mut self, request: Request<pb::WatchThreadsRequest>) -> Self::Future {
        let service = Arc::clone(&self.0);
        Box::pin(async move {
            let (call, request) = Call::open(&service, request)?;
            begin_watch(call, request).await.map(Response::new)
        })
    }
}
