//! The service as it is served. Messages have one bound for all methods but PutWorkspace, which has one of its own; as
//! a bundle is in memory before anybody can look at it, only a few are taken at once.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Status,
    body::Body,
    codegen::{BoxFuture, Service, http},
    server::NamedService,
};
use troupe_proto::{
    MAX_MESSAGE_BYTES,
    fault::Fault,
    reason::Reason,
    registry::v1::agent_registry_service_server::{AgentRegistryServiceServer, SERVICE_NAME},
};

use crate::{Parts, grpc::service::RegistryService};

/// The one method with a bound of its own.
const PUT_WORKSPACE: &str = "/troupe.registry.v1.AgentRegistryService/PutWorkspace";
/// Room for 16 MiB of files with 2,000 long paths.
const MAX_UPLOAD_BYTES: usize = 32 * 1024 * 1024;
/// How many uploads are taken at once.
const MAX_UPLOADS: usize = 4;
/// How long an upload may take.
const UPLOAD_WITHIN: Duration = Duration::from_secs(60);

/// The service, ready to be added to a server. Made by [`crate::Registry::service`].
#[derive(Clone, Debug)]
pub struct RegistryServer {
    calls: AgentRegistryServiceServer<RegistryService>,
    uploads: AgentRegistryServiceServer<RegistryService>,
    room: Arc<Semaphore>,
}

impl RegistryServer {
    pub(crate) fn new(parts: Arc<Parts>, draining: CancellationToken) -> Self {
        let service = Arc::new(RegistryService::new(parts, draining));
        let server = |limit| {
            AgentRegistryServiceServer::from_arc(Arc::clone(&service))
                .max_decoding_message_size(limit)
                .max_encoding_message_size(MAX_MESSAGE_BYTES)
        };
        Self {
            calls: server(MAX_MESSAGE_BYTES),
            uploads: server(MAX_UPLOAD_BYTES),
            room: Arc::new(Semaphore::new(MAX_UPLOADS)),
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
        if request.uri().path() != PUT_WORKSPACE {
            return self.calls.call(request);
        }
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            return Box::pin(async { Ok(busy().into_http()) });
        };
        let upload = self.uploads.call(request);
        Box::pin(async move {
            let _room = room;
            match timeout(UPLOAD_WITHIN, upload).await {
                Ok(answer) => answer,
                Err(_) => Ok(slow().into_http()),
            }
        })
    }
}

fn busy() -> Status {
    let text = format!("{MAX_UPLOADS} workspaces are being uploaded, which is the limit; try again in a moment");
    Fault::new(Code::ResourceExhausted, Reason::Overloaded, text)
        .with("max", MAX_UPLOADS)
        .retry_after(Duration::from_secs(1))
        .into()
}

fn slow() -> Status {
    let text = format!("the upload took more than {} s", UPLOAD_WITHIN.as_secs());
    Fault::new(Code::DeadlineExceeded, Reason::DeadlineExceeded, text).into()
}
