//! The test service and a server for it.

use std::{
    convert::Infallible,
    net::SocketAddr,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{Ready, ready};
use http::uri::PathAndQuery;
use svc_kit::{
    auth::{AuthLayer, Authenticator, Caller, Effect, Row},
    identity::{OperatorRole, Principal},
    listen::bind,
    secret::SecretToken,
    serve::{Listener, ServeError, ServeLimits, Serving, serve},
    shutdown::Shutdown,
    tls::ServerTls,
};
use tokio::{task::JoinHandle, time::timeout};
use tonic::{
    Request, Status,
    body::Body,
    client::Grpc,
    server::NamedService,
    service::Routes,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use tower::Service;

pub const NAME: &str = "test.v1.ThingService";
pub const READ: &str = "/test.v1.ThingService/Read";
pub const WRITE: &str = "/test.v1.ThingService/Write";
pub const NO_ROW: &str = "/test.v1.ThingService/NoRow";
pub const TABLE: &[Row] = &[
    Row {
        method: READ,
        who: &[Caller::Admin, Caller::Viewer],
        effect: Effect::Reads,
    },
    Row {
        method: WRITE,
        who: &[Caller::Admin],
        effect: Effect::Changes,
    },
];

/// Maximum duration of a wait in a test, even on a slow machine.
pub const MAX_WAIT: Duration = Duration::from_secs(30);

/// Responds to each call with ABORTED and the caller's scope key, so that no messages are needed.
#[derive(Clone)]
pub struct Things;

impl NamedService for Things {
    const NAME: &'static str = NAME;
}

impl Service<http::Request<Body>> for Things {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let principal = request.extensions().get::<Principal>();
        let who = principal.map(Principal::scope_key).unwrap_or_default();
        ready(Ok(Status::aborted(who).into_http()))
    }
}

pub struct Running {
    pub address: SocketAddr,
    pub shutdown: Shutdown,
    pub task: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    pub async fn start(authenticator: Authenticator, limits: ServeLimits) -> Self {
        Self::start_over(None, authenticator, limits).await
    }

    pub async fn start_over(tls: Option<ServerTls>, authenticator: Authenticator, limits: ServeLimits) -> Self {
        let listener = Listener::new(bind("127.0.0.1:0").await.unwrap(), tls);
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let task = tokio::spawn(serve(
            listener,
            Serving::new(Routes::new(Things), vec![NAME]),
            AuthLayer::new(authenticator, TABLE),
            limits,
            shutdown.clone(),
        ));
        Self {
            address,
            shutdown,
            task,
        }
    }

    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect().await.unwrap()
    }

    pub async fn stop(self) {
        self.shutdown.trigger();
        timeout(MAX_WAIT, self.task).await.unwrap().unwrap().unwrap();
    }
}

pub fn operators() -> Authenticator {
    let token = |text| SecretToken::parse(text).unwrap();
    Authenticator::new()
        .operator("ann", OperatorRole::Admin, token("admin-admin-admin"))
        .operator("vic", OperatorRole::Viewer, token("viewer-viewer-viewer"))
}

pub async fn call(channel: &Channel, method: &'static str, token: Option<&str>) -> Status {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let mut request = Request::new(());
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    let path = PathAndQuery::from_static(method);
    client
        .unary(request, path, ProstCodec::<(), ()>::default())
        .await
        .unwrap_err()
}
