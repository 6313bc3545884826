//! The server over TLS: trust on both sides, and client identity. `tests/tests/connections/certificate_rotation.rs`
//! runs whole services and replaces their certificates.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use svc_kit::{
    auth::Authenticator,
    serve::ServeLimits,
    tls::{ServerFiles, ServerTls},
};
use tempfile::TempDir;
use tokio::{net::TcpStream, time::timeout};
use tonic::{
    Code,
    transport::{Channel, Endpoint, Error},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use troupe_client::tls::{self, ClientFiles};

use super::{
    authority::Authority,
    things::{MAX_WAIT, READ, Running, WRITE, call, operators},
};

fn trusting(authority: &Path) -> ClientFiles {
    ClientFiles {
        authorities: Some(authority.to_owned()),
        identity: None,
    }
}

async fn connect(address: SocketAddr, files: &ClientFiles) -> Result<Channel, Error> {
    let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
    timeout(MAX_WAIT, tls::connect(endpoint, files)).await.unwrap()
}

/// Returns whether the server responds to an open method. With TLS 1.3 a client can send before its certificate is
/// verified.
async fn is_served(connected: Result<Channel, Error>) -> bool {
    match connected {
        Ok(channel) => HealthClient::new(channel)
            .check(HealthCheckRequest::default())
            .await
            .is_ok(),
        Err(_) => false,
    }
}

/// Starts a server with a certificate and returns the file of its authority. The directory must outlive the server.
async fn running(authenticator: Authenticator, limits: ServeLimits) -> (TempDir, Authority, PathBuf, Running) {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::default();
    let (certificate, key) = authority.server(directory.path(), "tls");
    let issuer = authority.publish(directory.path(), "ca.crt");
    let tls = ServerTls::load(ServerFiles {
        certificate,
        key,
        client_authorities: Some(issuer.clone()),
    });
    let server = Running::start_over(Some(tls.unwrap()), authenticator, limits).await;
    (directory, authority, issuer, server)
}

#[tokio::test]
async fn both_sides_must_trust_each_other() {
    let (directory, _, issuer, server) = running(operators(), ServeLimits::default()).await;
    let channel = connect(server.address, &trusting(&issuer)).await.unwrap();
    assert!(is_served(Ok(channel.clone())).await);
    let answer = call(&channel, READ, Some("admin-admin-admin")).await;
    assert_eq!((answer.code(), answer.message()), (Code::Aborted, "operator:ann"));
    assert_eq!(call(&channel, READ, None).await.code(), Code::Unauthenticated);

    let other = Authority::default();
    let stranger = other.publish(directory.path(), "other.crt");
    assert!(connect(server.address, &trusting(&stranger)).await.is_err());
    assert!(connect(server.address, &ClientFiles::default()).await.is_err());
    let plain = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    assert!(!is_served(plain.connect().await).await);
    server.stop().await;
}

#[tokio::test]
async fn certificate_identifies_client() {
    let (directory, authority, issuer, server) = running(operators(), ServeLimits::default()).await;
    let other = Authority::default();
    let who = |authority: &Authority, uri: &str| ClientFiles {
        identity: Some(authority.client(directory.path(), &uri.replace(['/', ':'], "-"), uri)),
        ..trusting(&issuer)
    };
    for (uri, read, write) in [
        ("spiffe://d/troupe/admin/eve", Code::Aborted, Code::Aborted),
        ("spiffe://d/troupe/viewer/val", Code::Aborted, Code::PermissionDenied),
        // The certificate has the name of an operator with a token.
        (
            "spiffe://d/troupe/viewer/vic",
            Code::Unauthenticated,
            Code::Unauthenticated,
        ),
        (
            "spiffe://d/troupe/runner/box",
            Code::PermissionDenied,
            Code::PermissionDenied,
        ),
        ("spiffe://d/somebody/else", Code::Unauthenticated, Code::Unauthenticated),
    ] {
        let channel = connect(server.address, &who(&authority, uri)).await.unwrap();
        assert_eq!(call(&channel, READ, None).await.code(), read, "{uri}");
        assert_eq!(call(&channel, WRITE, None).await.code(), write, "{uri}");
        // The token takes precedence.
        let by_token = call(&channel, WRITE, Some("admin-admin-admin")).await;
        assert_eq!(by_token.message(), "operator:ann", "{uri}");
    }
    let channel = connect(server.address, &who(&other, "spiffe://d/troupe/admin/eve")).await;
    assert!(!is_served(channel).await);
    server.stop().await;
}

#[tokio::test]
async fn silent_connection_does_not_block_drain() {
    let limits = ServeLimits {
        drain: Duration::from_secs(1),
        ..ServeLimits::default()
    };
    let (_directory, _, issuer, server) = running(operators(), limits).await;
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let channel = connect(server.address, &trusting(&issuer)).await.unwrap();
    assert_eq!(
        call(&channel, READ, Some("admin-admin-admin")).await.code(),
        Code::Aborted
    );
    server.stop().await;
    drop(silent);
}

#[test]
fn invalid_tls_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::default();
    let (certificate, key) = authority.server(directory.path(), "tls");
    let (_, foreign) = authority.server(directory.path(), "foreign");
    let empty = directory.path().join("empty");
    fs::write(&empty, "").unwrap();
    let missing = directory.path().join("missing");
    for (certificate, key, expected) in [
        (&missing, &key, "cannot read"),
        (&certificate, &missing, "cannot read"),
        (&empty, &key, "has no certificate in PEM"),
        (&certificate, &empty, "has no private key in PEM"),
        (&certificate, &foreign, "cannot be used"),
    ] {
        let error = ServerTls::load(ServerFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_authorities: None,
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(directory.path().to_str().unwrap()), "{error}");
    }
}
