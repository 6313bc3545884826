//! The layer with an authenticator and a table, in front of a service that returns its caller.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use http::{HeaderMap, HeaderValue, Request, Response, header::AUTHORIZATION};
use tower::{Layer as _, ServiceExt as _, service_fn};
use troupe_proto::fault::{metadata_of, reason_of};
use uuid::Uuid;

use super::*;
use crate::{
    identity::{OperatorRole, Principal, RunnerIds, ThreadPrincipal},
    peer::Peer,
    secret::{MAX_SHOWN_BYTES, SecretToken},
    thread_token::TokenKeys,
};

const READ: &str = "/test.v1.ThingService/Read";
const WRITE: &str = "/test.v1.ThingService/Write";
const TABLE: &[Row] = &[
    Row {
        method: READ,
        who: &[Caller::Admin, Caller::Viewer, Caller::Thread],
        effect: Effect::Reads,
    },
    Row {
        method: WRITE,
        who: &[Caller::Admin, Caller::Runner, Caller::Service],
        effect: Effect::Changes,
    },
];

struct Cast {
    keys: Arc<TokenKeys>,
}

impl Cast {
    fn new() -> Self {
        let keys = Arc::new(TokenKeys::generate().unwrap());
        Self { keys }
    }

    fn thread(&self) -> String {
        self.keys.mint(&ThreadPrincipal {
            session: Uuid::from_u128(1),
            thread: Uuid::from_u128(2),
            generation: 3,
        })
    }

    fn authenticator(&self) -> Authenticator {
        let token = |text| SecretToken::parse(text).unwrap();
        Authenticator::new()
            .operator("ann", OperatorRole::Admin, token("admin-admin-admin"))
            .operator("vic", OperatorRole::Viewer, token("viewer-viewer-viewer"))
            .runner("box", token("runner-runner-runner"))
            .service("supervisor", token("service-service-service"))
            .threads(Arc::clone(&self.keys))
    }
}

fn request(method: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().uri(method);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// Returns the principal that reaches the handler, or the rejection.
async fn call(authenticator: Authenticator, request: Request<()>) -> Result<Option<Principal>, Status> {
    let handler = service_fn(|request: Request<()>| async move {
        assert!(!request.headers().contains_key(AUTHORIZATION) || is_open(request.uri().path()));
        let mut response = Response::new(());
        if let Some(principal) = request.extensions().get::<Principal>() {
            response.extensions_mut().insert(principal.clone());
        }
        Ok::<_, Infallible>(response)
    });
    let service = AuthLayer::new(authenticator, TABLE).layer(handler);
    let response = service.oneshot(request).await.unwrap();
    match Status::from_header_map(response.headers()) {
        Some(status) => Err(status),
        None => Ok(response.extensions().get::<Principal>().cloned()),
    }
}

#[tokio::test]
async fn token_identifies_principal_and_table_authorizes() {
    let cast = Cast::new();
    let thread = cast.thread();
    let missing = "/test.v1.ThingService/Missing";
    for (token, scope, may_read, may_write) in [
        ("admin-admin-admin", "operator:ann", true, true),
        ("viewer-viewer-viewer", "operator:vic", true, false),
        ("runner-runner-runner", "runner:box", false, true),
        ("service-service-service", "service:supervisor", false, true),
        (
            thread.as_str(),
            "thread:00000000-0000-0000-0000-000000000002",
            true,
            false,
        ),
    ] {
        let authorization = format!("Bearer {token}");
        for (method, may) in [(READ, may_read), (WRITE, may_write), (missing, false)] {
            let answer = call(
                cast.authenticator(),
                request(method, &[("authorization", &authorization)]),
            )
            .await;
            if may {
                assert_eq!(answer.unwrap().unwrap().scope_key(), scope, "{method}");
            } else {
                let status = answer.unwrap_err();
                let (code, reason) = if method == missing {
                    (Code::Unimplemented, Reason::UnknownMethod)
                } else {
                    (Code::PermissionDenied, Reason::NotPermitted)
                };
                assert_eq!(status.code(), code, "{scope} {method}");
                assert_eq!(reason_of(&status), Some(reason));
                assert_eq!(metadata_of(&status)["method"], method);
                assert!(status.message().contains(method), "{}", status.message());
            }
        }
    }
}

#[tokio::test]
async fn invalid_tokens_are_indistinguishable() {
    let cast = Cast::new();
    let foreign = Cast::new().thread();
    let long = format!("Bearer {}", "x".repeat(MAX_SHOWN_BYTES + 1));
    for value in [
        "",
        "Bearer",
        "Bearer ",
        "admin-admin-admin",
        "Basic admin-admin-admin",
        "Bearer admin-admin-admix",
        "Bearer admin-admin-admin x",
        &format!("Bearer {foreign}"),
        &long,
    ] {
        for trust in [Trust::Nobody, Trust::Loopback, Trust::Everybody] {
            let authenticator = cast.authenticator().trust(trust);
            let status = call(authenticator, request(READ, &[("authorization", value)]))
                .await
                .unwrap_err();
            assert_eq!(status.code(), Code::Unauthenticated, "{value:?}");
            assert_eq!(reason_of(&status), Some(Reason::Unauthenticated));
            assert_eq!(status.message(), UNAUTHENTICATED);
        }
    }
    let twice = [
        ("authorization", "Bearer admin-admin-admin"),
        ("authorization", "Bearer admin-admin-admin"),
    ];
    let status = call(cast.authenticator(), request(READ, &twice)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
}

#[test]
fn trust_without_token_depends_on_address() {
    let at = |address: &str| Peer {
        address: Some(SocketAddr::new(address.parse().unwrap(), 1234)),
        ..Peer::default()
    };
    let (local, mapped, remote) = (&at("127.0.0.1"), &at("::ffff:127.0.0.1"), &at("10.0.0.1"));
    let unknown = &Peer::default();
    let none = HeaderMap::new();
    let mut proxied = HeaderMap::new();
    proxied.insert("x-forwarded-for", HeaderValue::from_static("10.0.0.1"));
    for (trust, headers, peer, expected) in [
        (Trust::Nobody, &none, local, None),
        (Trust::Loopback, &none, local, Some("operator:loopback")),
        (Trust::Loopback, &none, mapped, Some("operator:loopback")),
        (Trust::Loopback, &none, remote, None),
        (Trust::Loopback, &none, unknown, None),
        (Trust::Loopback, &proxied, local, None),
        (Trust::Everybody, &none, remote, Some("operator:anonymous")),
    ] {
        let found = Authenticator::new().trust(trust).authenticate(headers, peer);
        let scope = found.as_ref().map(Principal::scope_key);
        assert_eq!(scope.as_deref(), expected, "{trust:?} {peer:?}");
        assert!(found.is_none_or(|principal| principal.is_admin()));
    }
}

#[tokio::test]
async fn only_health_and_reflection_are_open() {
    for (method, open) in [
        ("/grpc.health.v1.Health/Check", true),
        ("/grpc.health.v1.Health/Watch", true),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", true),
        ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", true),
        ("/grpc.health.v1.HealthX/Check", false),
        ("/test/grpc.health.v1.Health/Check", false),
        ("/grpc.channelz.v1.Channelz/GetServers", false),
    ] {
        let answer = call(Authenticator::new(), request(method, &[])).await;
        assert_eq!(answer.is_ok(), open, "{method}");
    }
}

#[test]
fn certificate_is_used_without_token() {
    let runner = Principal::Runner {
        name: "box".to_owned(),
        ids: RunnerIds::Certificate("box".to_owned()),
    };
    let peer = Peer {
        principal: Some(Arc::new(runner.clone())),
        ..Peer::default()
    };
    let cast = Cast::new();
    let mut headers = HeaderMap::new();
    assert_eq!(cast.authenticator().authenticate(&headers, &peer), Some(runner));
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer admin-admin-admin"));
    let admin = cast.authenticator().authenticate(&headers, &peer);
    assert!(admin.is_some_and(|principal| principal.is_admin()));
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer something-else-here"));
    assert_eq!(cast.authenticator().authenticate(&headers, &peer), None);
}

#[test]
fn certificate_cannot_claim_name_of_token_operator() {
    let cast = Cast::new();
    let of = |name: &str, role| {
        let name = name.to_owned();
        let principal = Some(Arc::new(Principal::Operator { name, role }));
        let peer = Peer {
            principal,
            ..Peer::default()
        };
        cast.authenticator().authenticate(&HeaderMap::new(), &peer)
    };
    for role in [OperatorRole::Admin, OperatorRole::Viewer] {
        for name in [
            "ann",
            "vic",
            "local",
            "loopback",
            "anonymous",
            "LOCAL",
            "Local",
            "Anonymous",
            "ANN",
        ] {
            assert_eq!(of(name, role), None, "{name}");
        }
        // Names of runners and services are not reserved.
        for name in ["eve", "box", "supervisor"] {
            assert!(of(name, role).is_some(), "{name}");
        }
    }
}

#[test]
fn configured_authentication_overrides_insecure() {
    for (asks, insecure, expected) in [
        (true, true, Trust::Nobody),
        (true, false, Trust::Nobody),
        (false, true, Trust::Everybody),
        (false, false, Trust::Loopback),
    ] {
        assert_eq!(Trust::of(asks, insecure), expected);
    }
}

#[tokio::test]
async fn only_cluster_members_can_call_member_methods() {
    const FORWARD: &str = "/troupe.cluster.v1.MemberService/Forward";
    let cast = Cast::new();
    let member = SecretToken::parse("member-member-member").unwrap();
    let caller = Principal::Operator {
        name: "ann".to_owned(),
        role: OperatorRole::Viewer,
    };
    let value = caller.to_header();
    let value = value.to_str().unwrap();
    for (token, is_member) in [
        ("member-member-member", true),
        ("admin-admin-admin", false),
        ("service-service-service", false),
    ] {
        let token = format!("Bearer {token}");
        let headers = [("authorization", token.as_str()), ("troupe-principal", value)];
        let authenticator = cast.authenticator().members(member.clone());
        let answer = call(authenticator, request(FORWARD, &headers)).await;
        if is_member {
            assert_eq!(answer.unwrap(), Some(caller.clone()));
            // For all other methods, the call has the permissions of the caller that the member names.
            let authenticator = cast.authenticator().members(member.clone());
            let answer = call(authenticator, request(WRITE, &headers)).await;
            assert_eq!(answer.unwrap_err().code(), Code::PermissionDenied);
        } else {
            assert_eq!(answer.unwrap_err().code(), Code::Unimplemented, "{token}");
        }
    }
}
