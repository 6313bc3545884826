//! JWTs: a line with the header, followed by the claims, signed with the issuer's key. An accepted token has the
//! required claims. A token without a valid signature is rejected.
#![no_main]

use std::{fs, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, crypto::sign};
use libfuzzer_sys::fuzz_target;
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Value, json};
use svc_kit::{
    auth::Authenticator,
    identity::{OperatorRole, Principal},
    jwks::KeysAt,
    jwt::{Jwt, JwtOptions},
    jwt_roles::Machine,
    peer::Peer,
};
use tonic::codegen::http::{HeaderMap, HeaderValue, header::AUTHORIZATION};

const ISSUER: &str = "https://id.example.org";
const AUDIENCE: &str = "troupe";

/// A provider's key, and an authenticator that accepts its signatures.
static PROVIDER: LazyLock<(EncodingKey, Authenticator)> = LazyLock::new(|| {
    let key = KeyPair::generate().expect("a key");
    // An uncompressed point: 4, x, y.
    let point = key.der_bytes();
    let published = json!({"keys": [{
        "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "one",
        "x": encoded(&point[1..33]), "y": encoded(&point[33..65]),
    }]});
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keys.json");
    fs::write(&path, published.to_string()).expect("the keys are written");
    // The file is deleted with the directory. The keys that were read from it stay valid.
    let options = JwtOptions {
        jwt_issuer: Some(ISSUER.to_owned()),
        jwt_audience: Some(AUDIENCE.to_owned()),
        jwt_keys: Some(KeysAt::File(path)),
        ..JwtOptions::default()
    };
    let jwt = Jwt::load(options, Machine::Runner);
    let authenticator = Authenticator::new().jwt(jwt.expect("the keys are read"));
    (EncodingKey::from_ec_der(&key.serialize_der()), authenticator)
});

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the principal of a token.
fn holder(token: &str) -> Option<Principal> {
    let value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    PROVIDER.1.authenticate(&headers, &Peer::default())
}

/// Returns whether a claim, either a string or a list, contains this text.
fn names(claim: &Value, text: &str) -> bool {
    claim == text || claim.as_array().is_some_and(|list| list.iter().any(|one| one == text))
}

fn check(header: &str, claims: &str, principal: &Principal) {
    let read = |text| serde_json::from_str::<Value>(text).expect("accepted tokens contain JSON");
    assert_eq!(read(header)["alg"], "ES256");
    let claims = read(claims);
    assert!(
        names(&claims["iss"], ISSUER) && names(&claims["aud"], AUDIENCE),
        "{claims}"
    );
    assert!(claims["exp"].as_f64().is_some_and(|end| end > 1e9), "{claims}");

    let Principal::Operator { name, role } = principal else {
        panic!("only operators come with a JWT, not {principal}");
    };
    assert_eq!(claims["sub"], *name);
    assert!(!name.is_empty() && !name.contains(char::is_control), "{name:?}");
    let expected = match role {
        OperatorRole::Admin => "admin",
        OperatorRole::Viewer => "viewer",
    };
    assert!(names(&claims["troupe_role"], expected), "{claims}");
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    assert_eq!(holder(text), None, "the token is unsigned");

    let (header, claims) = text.split_once('\n').unwrap_or((text, "{}"));
    let unsigned = format!("{}.{}", encoded(header.as_bytes()), encoded(claims.as_bytes()));
    for signature in [String::new(), encoded(&[1; 64])] {
        assert_eq!(
            holder(&format!("{unsigned}.{signature}")),
            None,
            "the token is unsigned"
        );
    }
    let signature = sign(unsigned.as_bytes(), &PROVIDER.0, Algorithm::ES256).expect("a signature");
    if let Some(principal) = holder(&format!("{unsigned}.{signature}")) {
        check(header, claims, &principal);
    }
});
