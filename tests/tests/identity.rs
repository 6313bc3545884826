//! Operators whom an identity provider vouches for, at a service that knows them by its keys alone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{fs, time::SystemTime};

use jsonwebtoken::{
    Algorithm, EncodingKey, Header, encode,
    jwk::{Jwk, JwkSet},
};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tonic::Code;
use troupe_proto::supervisor::v1::{CreateSessionRequest, ListSessionsRequest};
use troupe_tests::{
    client,
    process::{Home, service},
    within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_says_who_is_an_operator_and_of_what_kind() {
    let home = Home::default();
    let key = EncodingKey::from_ec_der(&KeyPair::generate().unwrap().serialize_der());
    let keys = JwkSet {
        keys: vec![Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap()],
    };
    fs::write(home.path().join("keys.json"), serde_json::to_string(&keys).unwrap()).unwrap();
    let (mut command, ready) = service(&home, "supervisor");
    command.args(["--data-dir", "data", "--require-token"]).args([
        "--jwt-issuer",
        "https://id.example.org",
        "--jwt-audience",
        "troupe",
        "--jwt-keys",
        "keys.json",
    ]);
    let _process = command.spawn().unwrap();
    let address = within("a service that serves", ready.address()).await;

    let expires = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() + 300;
    let claims = |role: &str| json!({"iss": "https://id.example.org", "aud": "troupe", "sub": "ann", "exp": expires, "troupe_role": role});
    let by = |claims: &Value| {
        let token = encode(&Header::new(Algorithm::ES256), claims, &key).unwrap();
        client::supervisor(address.parse().unwrap(), Some(&token))
    };
    let mut admin = by(&claims("admin"));
    admin.create_session(CreateSessionRequest::default()).await.unwrap();

    let mut viewer = by(&claims("viewer"));
    let listed = viewer.list_sessions(ListSessionsRequest::default()).await.unwrap();
    assert_eq!(listed.into_inner().sessions.len(), 1);
    let refused = viewer
        .create_session(CreateSessionRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);

    let refused = by(&claims("root")).list_sessions(ListSessionsRequest::default()).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
}
