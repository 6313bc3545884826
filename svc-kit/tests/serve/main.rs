//! A real server on a free port, over TCP and TLS: authentication, open methods and shutdown.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "../../../tests/src/authority.rs"]
mod authority;
mod things;
mod tls;

use std::time::Duration;

use futures::stream;
use svc_kit::{auth::Trust, serve::ServeLimits};
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use self::things::{MAX_WAIT, NAME, NO_ROW, READ, Running, WRITE, call, operators};

#[tokio::test]
async fn table_authorizes_and_handler_receives_caller() {
    let running = Running::start(operators(), ServeLimits::default()).await;
    let channel = running.channel().await;
    let (admin, viewer) = (Some("admin-admin-admin"), Some("viewer-viewer-viewer"));
    for (method, token, code) in [
        (READ, admin, Code::Aborted),
        (WRITE, admin, Code::Aborted),
        (READ, viewer, Code::Aborted),
        (WRITE, viewer, Code::PermissionDenied),
        (NO_ROW, admin, Code::Unimplemented),
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
async fn loopback_is_trusted_only_without_token() {
    let running = Running::start(operators().trust(Trust::Loopback), ServeLimits::default()).await;
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
async fn health_watcher_is_notified_and_does_not_block_drain() {
    let limits = ServeLimits {
        drain: MAX_WAIT * 2,
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
async fn silent_connection_is_closed_at_drain_deadline() {
    let limits = ServeLimits {
        drain: Duration::from_millis(200),
        ..ServeLimits::default()
    };
    let running = Running::start(operators(), limits).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    // Connections are accepted in order. After this response the silent connection has been accepted.
    let channel = running.channel().await;
    assert_eq!(call(&channel, READ, None).await.code(), Code::Unauthenticated);
    drop(channel);

    running.stop().await;
    let mut rest = Vec::new();
    // The connection is closed or reset.
    let _ = timeout(MAX_WAIT, silent.read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test]
async fn stopped_server_accepts_no_connections() {
    let running = Running::start(operators(), ServeLimits::default()).await;
    let address = running.address;
    running.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
}
