//! A real server on a free port: who gets in, what is always open, and how it ends.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    convert::Infallible,
    net::SocketAddr,
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    future::{Ready, ready},
    stream,
};
use http::uri::PathAndQuery;
use svc_kit::{
    auth::{AuthLayer, Authenticator, Caller, Row},
    identity::{OperatorRole, Principal},
    listen::bind,
    secret::SecretToken,
    serve::{ServeError, ServeLimits, Serving, serve},
    shutdown::Shutdown,
};
use tokio::{io::AsyncReadExt as _, net::TcpStream, task::JoinHandle, time::timeout};
use tonic::{
    Code, Request, Status,
    body::Body,
    client::Grpc,
    server::NamedService,
    service::Routes,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_prost::ProstCodec;
use tower::Service;

const NAME: &str = "test.v1.ThingService";
const READ: &str = "/test.v1.ThingService/Read";
const WRITE: &str = "/test.v1.ThingService/Write";
const NO_ROW: &str = "/test.v1.ThingService/NoRow";
const TABLE: &[Row] = &[
    Row {
        method: READ,
        who: &[Caller::Admin, Caller::Viewer],
    },
    Row {
        method: WRITE,
        who: &[Caller::Admin],
    },
];

/// More than any test takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers every call with ABORTED and the caller's scope key, which needs no messages of its own.
#[derive(Clone)]
struct Things;

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

struct Running {
    address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    async fn start(authenticator: Authenticator, limits: ServeLimits) -> Self {
        let listener = bind("127.0.0.1:0").await.unwrap();
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

    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect().await.unwrap()
    }

    async fn stop(self) {
        self.shutdown.trigger();
        timeout(PATIENCE, self.task).await.unwrap().unwrap().unwrap();
    }
}

fn operators() -> Authenticator {
    let token = |text| SecretToken::parse(text).unwrap();
    Authenticator::new()
        .operator("ann", OperatorRole::Admin, token("admin-admin-admin"))
        .operator("vic", OperatorRole::Viewer, token("viewer-viewer-viewer"))
}

async fn call(channel: &Channel, method: &'static str, token: Option<&str>) -> Status {
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

#[tokio::test]
async fn the_table_decides_and_the_handler_knows_its_caller() {
    let running = Running::start(operators(), ServeLimits::default()).await;
    let channel = running.channel().await;
    let (admin, viewer) = (Some("admin-admin-admin"), Some("viewer-viewer-viewer"));
    for (method, token, code) in [
        (READ, admin, Code::Aborted),
        (WRITE, admin, Code::Aborted),
        (READ, viewer, Code::Aborted),
        (WRITE, viewer, Code::PermissionDenied),
        (NO_ROW, admin, Code::PermissionDenied),
        (READ, None, Code::Unauthenticated),
        (READ, Some("not-a-known-token"), Code::Unauthenticated),
        (NO_ROW, None, Code::Unauthenticated),
    ] {
        let status = call(&channel, method, token).await;
        assert_eq!(status.code(), code, "{method} {token:?}: {status}");
        if code == Code::Aborted {
            let expected = if token == admin { "operator:ann" } else { "operator:vic" };
            assert_eq!(status.message(), expected);
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn loopback_is_trusted_only_without_a_token() {
    let running = Running::start(operators().trust_loopback(true), ServeLimits::default()).await;
    let channel = running.channel().await;
    let trusted = call(&channel, WRITE, None).await;
    assert_eq!(
        (trusted.code(), trusted.message()),
        (Code::Aborted, "operator:loopback")
    );
    let bad = call(&channel, WRITE, Some("not-a-known-token")).await;
    assert_eq!(bad.code(), Code::Unauthenticated);
    running.stop().await;
}

#[tokio::test]
async fn health_and_both_reflections_are_open() {
    let running = Running::start(operators(), ServeLimits::default()).await;
    let channel = running.channel().await;
    let mut health = HealthClient::new(channel.clone());
    for service in ["", NAME] {
        let service = service.to_owned();
        let answer = health.check(HealthCheckRequest { service }).await.unwrap();
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving);
    }

    macro_rules! listed {
        ($version:ident) => {{
            use tonic_reflection::pb::$version::{
                ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
                server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
            };
            let ask = ServerReflectionRequest {
                host: String::new(),
                message_request: Some(MessageRequest::ListServices(String::new())),
            };
            let mut client = ServerReflectionClient::new(channel.clone());
            let answers = client.server_reflection_info(stream::iter([ask])).await.unwrap();
            let answer = answers.into_inner().message().await.unwrap().unwrap();
            let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
                panic!("reflection answered something else");
            };
            let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
            names
        }};
    }
    for names in [listed!(v1), listed!(v1alpha)] {
        assert!(names.iter().any(|name| name == NAME), "{names:?}");
        assert!(names.iter().any(|name| name == "grpc.health.v1.Health"), "{names:?}");
        assert!(!names.iter().any(|name| name.starts_with("troupe.")), "{names:?}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_watcher_of_health_hears_of_the_drain_and_does_not_hold_it_up() {
    let limits = ServeLimits {
        drain: PATIENCE * 2,
        ..ServeLimits::default()
    };
    let running = Running::start(operators(), limits).await;
    let mut health = HealthClient::new(running.channel().await);
    let request = HealthCheckRequest { service: String::new() };
    let mut watch = health.watch(request).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);

    running.shutdown.trigger();
    let last = watch.message().await.unwrap().unwrap();
    assert_eq!(last.status(), ServingStatus::NotServing);
    assert!(watch.message().await.unwrap().is_none());
    assert!(running.shutdown.draining().is_cancelled());
    running.stop().await;
}

#[tokio::test]
async fn a_connection_that_never_speaks_is_cut_off_at_the_deadline() {
    let limits = ServeLimits {
        drain: Duration::from_millis(200),
        ..ServeLimits::default()
    };
    let running = Running::start(operators(), limits).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    // Connections are accepted in order, so once this one is answered the silent one was accepted.
    let channel = running.channel().await;
    assert_eq!(call(&channel, READ, None).await.code(), Code::Unauthenticated);
    drop(channel);

    running.stop().await;
    let mut rest = Vec::new();
    // Ended or reset: either way the server let go of it.
    let _ = timeout(PATIENCE, silent.read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test]
async fn a_stopped_server_accepts_no_more() {
    let running = Running::start(operators(), ServeLimits::default()).await;
    let address = running.address;
    running.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
}
