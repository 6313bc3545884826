//! The gRPC server. All methods share one message size limit, except for the methods that carry a bundle, which have
//! their own. The whole bundle is in memory while such a call receives or sends it, so only a few of these calls run at
//! a time.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use prost::bytes::Bytes;
use svc_kit::{
    encoded::{EncodedCodec, EncodedMethod, MethodOverride, ResponseFuture},
    held,
};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    codegen::{BoxFuture, Service, http},
    server::{Grpc, NamedService, UnaryService},
};
use troupe_proto::{
    MAX_MESSAGE_BYTES, MAX_WORKSPACE_MESSAGE_BYTES,
    fault::Fault,
    reason::Reason,
    registry::v1::{
        ResolveSpawnRequest,
        agent_registry_service_server::{AgentRegistryServiceServer, SERVICE_NAME},
    },
};

use crate::{Parts, grpc::service::RegistryService};

/// The methods that carry a bundle.
const BUNDLE_METHODS: &[&str] = &[
    "/troupe.registry.v1.AgentRegistryService/PutWorkspace",
    "/troupe.registry.v1.AgentRegistryService/GetWorkspace",
];
/// Maximum number of concurrent calls that carry a bundle. A call lasts until its response is read or abandoned.
const MAX_TRANSFERS: usize = 4;
/// Maximum time until the response to a call that carries a bundle begins. Afterwards, the maximum time that the
/// response holds its slot.
const TRANSFER_WITHIN: Duration = Duration::from_secs(60);

/// The service, ready to be added to a server. Created by [`crate::Registry::service`].
#[derive(Clone, Debug)]
pub struct RegistryServer {
    calls: MethodOverride<AgentRegistryServiceServer<RegistryService>, ResolveMethod>,
    bundles: AgentRegistryServiceServer<RegistryService>,
    transfers: Arc<Semaphore>,
}

impl RegistryServer {
    pub(crate) fn new(parts: Arc<Parts>, draining: CancellationToken) -> Self {
        let service = RegistryService::new(parts, draining);
        let resolve = ResolveMethod(service.clone());
        let service = Arc::new(service);
        let server = |limit| {
            AgentRegistryServiceServer::from_arc(Arc::clone(&service))
                .max_decoding_message_size(limit)
                .max_encoding_message_size(limit)
        };
        Self {
            calls: MethodOverride::new(server(MAX_MESSAGE_BYTES), resolve),
            bundles: server(MAX_WORKSPACE_MESSAGE_BYTES),
            transfers: Arc::new(Semaphore::new(MAX_TRANSFERS)),
        }
    }
}

impl NamedService for RegistryServer {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for RegistryServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if !BUNDLE_METHODS.contains(&request.uri().path()) {
            return self.calls.call(request);
        }
        let Ok(slot) = Arc::clone(&self.transfers).try_acquire_owned() else {
            return Box::pin(async { Ok(busy().into_http()) });
        };
        let transfer = self.bundles.call(request);
        Box::pin(async move {
            let answer = match timeout(TRANSFER_WITHIN, transfer).await {
                Ok(answer) => answer,
                Err(_) => Ok(slow().into_http()),
            };
            answer.map(|answer| held::hold(answer, slot, TRANSFER_WITHIN))
        })
    }
}

/// The method ResolveSpawn, whose responses are encoded once and cached.
#[derive(Clone, Debug)]
struct ResolveMethod(RegistryService);

impl EncodedMethod for ResolveMethod {
    const PATH: &'static str = "/troupe.registry.v1.AgentRegistryService/ResolveSpawn";

    fn call(&self, request: http::Request<Body>) -> ResponseFuture {
        let method = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(EncodedCodec::default())
                .apply_max_message_size_config(Some(MAX_MESSAGE_BYTES), Some(MAX_MESSAGE_BYTES));
            Ok(grpc.unary(method, request).await)
        })
    }
}

impl UnaryService<ResolveSpawnRequest> for ResolveMethod {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<ResolveSpawnRequest>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move { service.resolve(request.into_inner()).await })
    }
}

fn busy() -> Status {
    let text =
        format!("{MAX_TRANSFERS} workspaces are being uploaded or read, which is the limit; try again in a moment");
    Fault::new(Code::ResourceExhausted, Reason::Overloaded, text)
        .with("max", MAX_TRANSFERS)
        .retry_after(Duration::from_secs(1))
        .into()
}

fn slow() -> Status {
    let text = format!("the transfer took more than {} s", TRANSFER_WITHIN.as_secs());
    Fault::new(Code::DeadlineExceeded, Reason::DeadlineExceeded, text).into()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use prost::Message as _;
    use tokio::task::yield_now;
    use troupe_proto::registry::v1::GetWorkspaceRequest;

    use super::*;
    use crate::{Config, Registry, Upload, domain::template::Scope};

    /// Returns the call that reads a bundle back.
    fn get(digest: &str) -> http::Request<Body> {
        let request = GetWorkspaceRequest {
            workspace_digest: digest.to_owned(),
        };
        let length = u32::try_from(request.encoded_len()).unwrap();
        let mut message = vec![0];
        message.extend(length.to_be_bytes());
        message.extend(request.encode_to_vec());
        http::Request::post("/troupe.registry.v1.AgentRegistryService/GetWorkspace")
            .header("content-type", "application/grpc")
            .body(Body::new(String::from_utf8(message).unwrap()))
            .unwrap()
    }

    #[tokio::test]
    async fn transfer_slot_is_held_until_response_is_read() {
        let registry = Registry::open(Config::default()).unwrap();
        let upload = Upload {
            scope: Scope::User,
            path: ".codex/.agents/a.md".to_owned(),
            content: "x".into(),
        };
        let (bundles, sources) = (&registry.parts.bundles, &registry.parts.sources);
        let digest = bundles.put(vec![upload], None, sources, Instant::now()).unwrap();
        let mut server = registry.service();
        let mut unread = Vec::new();
        for _ in 0..MAX_TRANSFERS {
            let answer = server.call(get(digest.as_str())).await.unwrap();
            assert!(Status::from_header_map(answer.headers()).is_none());
            unread.push(answer);
        }
        let refused = server.call(get(digest.as_str())).await.unwrap();
        let status = Status::from_header_map(refused.headers()).unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        unread.pop();
        let released = async {
            while server.transfers.available_permits() == 0 {
                yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), released).await.unwrap();
        let answer = server.call(get(digest.as_str())).await.unwrap();
        assert!(Status::from_header_map(answer.headers()).is_none());
    }
}
