//! An identity provider with its key: it publishes the key and signs tokens.

use std::time::SystemTime;

use jsonwebtoken::{
    Algorithm, EncodingKey, Header, encode,
    jwk::{Jwk, JwkSet},
};
use rcgen::KeyPair;
use serde_json::{Value, json};

/// A provider's signing key and its id.
pub struct Key {
    id: &'static str,
    key: EncodingKey,
}

impl Key {
    /// Generates a key.
    ///
    /// # Panics
    ///
    /// If no key can be generated.
    #[must_use]
    pub fn new(id: &'static str) -> Self {
        let key = EncodingKey::from_ec_der(&KeyPair::generate().unwrap().serialize_der());
        Self { id, key }
    }

    /// Returns the JWK set that the provider publishes. It contains only this key.
    ///
    /// # Panics
    ///
    /// If the key cannot be encoded.
    #[must_use]
    pub fn published(&self) -> String {
        let mut jwk = Jwk::from_encoding_key(&self.key, Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(self.id.to_owned());
        serde_json::to_string(&JwkSet { keys: vec![jwk] }).unwrap()
    }

    /// Returns a signed token of the user `ann` with this role.
    #[must_use]
    pub fn token(&self, role: &str) -> String {
        self.signed("ann", json!({"troupe_role": role}))
    }

    /// Returns a signed token of this subject with additional claims.
    ///
    /// # Panics
    ///
    /// If the token cannot be signed.
    #[must_use]
    pub fn signed(&self, subject: &str, mut claims: Value) -> String {
        let header = Header {
            kid: Some(self.id.to_owned()),
            ..Header::new(Algorithm::ES256)
        };
        let expires = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() + 300;
        for (name, value) in [
            ("iss", json!("https://id.example.org")),
            ("aud", json!("troupe")),
            ("sub", json!(subject)),
            ("exp", json!(expires)),
        ] {
            claims[name] = value;
        }
        encode(&header, &claims, &self.key).unwrap()
    }
}
