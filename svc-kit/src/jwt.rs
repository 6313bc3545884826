//! Callers with a JWT: operators with a token of an identity provider, runners and services with the projected token of
//! their Kubernetes service account.
//!
//! Signature, issuer, audience and times are checked, and the claims determine the principal ([`crate::jwt_roles`]).
//! Threads never use a JWT.

use std::{path::PathBuf, sync::Arc};

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    jwk::{Jwk, KeyAlgorithm, PublicKeyUse},
};
use serde_json::{Map, Value};
use troupe_client::tls::ClientFiles;

use crate::{
    bounded::Bounded,
    identity::{MAX_NAME_BYTES, NAME_MARKS, Principal, is_name},
    jwks::{FetchOptions, Keys, KeysAt, KeysError},
    jwt_roles::{Grant, Machine, Roles, RolesError},
};

/// Accepted algorithms: those with a public key, which can verify a signature but not create one.
const ALGORITHMS: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Allowed clock difference between the provider and this machine, in seconds.
const LEEWAY_SECONDS: u64 = 30;

/// The issuer of the accepted JWTs, its keys, and the roles of the subjects.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct JwtOptions {
    /// Issuer of JWTs: for operators, whose claims grant admin or viewer, and for subjects that --jwt-role names
    #[arg(long, env = "TROUPE_JWT_ISSUER", value_name = "URL", requires_all = ["jwt_audience", "jwt_keys"])]
    pub jwt_issuer: Option<String>,
    /// Required audience of the JWTs
    #[arg(long, env = "TROUPE_JWT_AUDIENCE", value_name = "NAME", requires = "jwt_issuer")]
    pub jwt_audience: Option<String>,
    /// Public keys of the issuer as a JWKS: a file, read again after a change, or a URL, fetched every 5 minutes
    #[arg(long, env = "TROUPE_JWT_KEYS", value_name = "FILE|URL", requires = "jwt_issuer")]
    pub jwt_keys: Option<KeysAt>,
    /// Authorities of the certificate at the URL of --jwt-keys in PEM [default: the public ones]
    #[arg(long, env = "TROUPE_JWT_CA", value_name = "FILE", requires = "jwt_keys")]
    pub jwt_ca: Option<PathBuf>,
    /// Bearer token file for the URL of --jwt-keys, which the API server of a cluster requires; the first line is read
    /// for each request
    #[arg(long, env = "TROUPE_JWT_KEYS_TOKEN", value_name = "FILE", requires = "jwt_keys")]
    pub jwt_keys_token: Option<PathBuf>,
    /// Claim that contains the role, as a text or a list of texts; dots name nested claims, as in realm_access.roles
    /// [default: troupe_role]
    #[arg(long, env = "TROUPE_JWT_ROLE_CLAIM", value_name = "NAME", requires = "jwt_issuer")]
    pub jwt_role_claim: Option<String>,
    /// Role of a value of the claim, or of a subject with sub:SUBJECT: admin or viewer; for a subject also runner
    /// (supervisor only) or service (registry only) (repeatable, or separated by `;`; the strongest of several applies)
    /// [default: admin=admin;viewer=viewer]
    #[arg(
        long = "jwt-role",
        env = "TROUPE_JWT_ROLES",
        value_name = "VALUE=ROLE",
        value_delimiter = ';',
        requires = "jwt_issuer"
    )]
    pub jwt_roles: Vec<Grant>,
}

/// Why tokens cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    /// The keys are unavailable.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The grants are invalid.
    #[error(transparent)]
    Roles(#[from] RolesError),
}

/// Verifier of one issuer's tokens.
#[derive(Debug)]
pub struct Jwt {
    issuer: String,
    audience: String,
    keys: Keys,
    roles: Roles,
    /// Rate limit of log lines about subjects that are not valid names.
    other_names: Bounded,
}

impl Jwt {
    /// Loads the verifier of a service. `known` is the kind of machine that calls the service in addition to operators.
    /// Returns `None` if the options set no issuer.
    ///
    /// # Errors
    ///
    /// If the keys cannot be read, or a grant has no meaning at this service.
    pub fn load(options: JwtOptions, known: Machine) -> Result<Option<Arc<Self>>, JwtError> {
        let JwtOptions {
            jwt_issuer: Some(issuer),
            jwt_audience: Some(audience),
            jwt_keys: Some(place),
            jwt_ca: authorities,
            jwt_keys_token: token,
            jwt_role_claim: claim,
            jwt_roles: grants,
        } = options
        else {
            return Ok(None);
        };
        let files = ClientFiles {
            authorities,
            identity: None,
        };
        let roles = Roles::new(claim, grants, known)?;
        Ok(Some(Arc::new(Self {
            issuer,
            audience,
            keys: Keys::open(place, FetchOptions { files, token })?,
            roles,
            other_names: Bounded::default(),
        })))
    }

    /// Returns the principal of a token; `None` if the token is invalid or has no principal.
    #[must_use]
    pub(crate) fn verify(&self, token: &str) -> Option<Principal> {
        let header = decode_header(token).ok()?;
        // RFC 7515 4.1.11: a token with an unknown critical extension is rejected, and no extension is known here.
        if !ALGORITHMS.contains(&header.alg) || header.crit.is_some() {
            return None;
        }
        let keys = self.keys.get();
        let key = match (&header.kid, &keys.keys[..]) {
            (Some(id), _) => keys.find(id).or_else(|| {
                self.keys.request_refresh();
                None
            })?,
            (None, [only]) => only,
            (None, _) => return None,
        };
        let claims = decode::<Map<String, Value>>(token, &key_of(key, header.alg)?, &self.validation(header.alg))
            .ok()?
            .claims;
        let name = claims.get("sub")?.as_str()?;
        if !is_name(name) {
            self.other_names.write(|passed_over| {
                tracing::warn!(
                    subject = ?name.chars().take(MAX_NAME_BYTES).collect::<String>(),
                    passed_over,
                    "a JWT is rejected: its subject is not 1 to {MAX_NAME_BYTES} letters, digits and {NAME_MARKS}"
                );
            });
            return None;
        }
        Some(self.roles.of(name, &claims)?.principal(name.to_owned(), &claims))
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation
    }
}

/// Returns the key for an algorithm. A key that declares its purpose is used for nothing else.
fn key_of(key: &Jwk, algorithm: Algorithm) -> Option<DecodingKey> {
    let fits = key
        .common
        .key_algorithm
        .is_none_or(|named| named == KeyAlgorithm::from(algorithm));
    let signs = key.common.public_key_use.as_ref();
    let fits = fits && signs.is_none_or(|named| *named == PublicKeyUse::Signature);
    fits.then(|| DecodingKey::from_jwk(key).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, time::SystemTime};

    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use jsonwebtoken::{EncodingKey, Header, encode};
    use rcgen::{KeyPair, PublicKeyData as _};
    use serde_json::json;

    use super::*;
    use crate::{identity::RunnerIds, secret::MAX_SHOWN_BYTES};

    /// An identity provider with a P-256 key.
    struct Provider {
        id: &'static str,
        key: KeyPair,
    }

    impl Provider {
        fn new(id: &'static str) -> Self {
            let key = KeyPair::generate().unwrap();
            Self { id, key }
        }

        fn publish(&self, path: &Path) {
            // An uncompressed point: 4, x, y.
            let point = self.key.der_bytes();
            let half = |range| URL_SAFE_NO_PAD.encode(&point[range]);
            let key = json!({
                "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.id,
                "x": half(1..33), "y": half(33..65),
            });
            fs::write(path, json!({"keys": [key]}).to_string()).unwrap();
        }

        fn token(&self, claims: &Value) -> String {
            let header = Header {
                kid: Some(self.id.to_owned()),
                ..Header::new(Algorithm::ES256)
            };
            encode(&header, claims, &EncodingKey::from_ec_der(&self.key.serialize_der())).unwrap()
        }
    }

    fn now() -> u64 {
        SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
    }

    fn claims() -> Value {
        json!({
            "iss": "https://id.example.org", "aud": "troupe", "sub": "ann",
            "exp": now() + 300, "troupe_role": "admin",
        })
    }

    fn with(name: &str, value: Value) -> Value {
        let mut claims = claims();
        claims[name] = value;
        claims
    }

    fn checker(path: &Path) -> Arc<Jwt> {
        let options = JwtOptions {
            jwt_issuer: Some("https://id.example.org".to_owned()),
            jwt_audience: Some("troupe".to_owned()),
            jwt_keys: Some(KeysAt::File(path.to_owned())),
            ..JwtOptions::default()
        };
        Jwt::load(options, Machine::Runner).unwrap().unwrap()
    }

    fn who(jwt: &Jwt, token: &str) -> Option<(String, bool)> {
        let principal = jwt.verify(token)?;
        Some((principal.scope_key(), principal.is_admin()))
    }

    #[test]
    fn token_must_match_issuer_audience_and_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let provider = Provider::new("one");
        provider.publish(&path);
        let jwt = checker(&path);
        let ann = Some(("operator:ann".to_owned(), true));
        assert_eq!(who(&jwt, &provider.token(&claims())), ann);
        let several = with("aud", json!(["other", "troupe"]));
        assert_eq!(who(&jwt, &provider.token(&several)), ann);
        let viewer = with("troupe_role", json!("viewer"));
        assert_eq!(
            who(&jwt, &provider.token(&viewer)),
            Some(("operator:ann".to_owned(), false))
        );

        for (name, value) in [
            ("iss", json!("https://id.example.com")),
            ("iss", Value::Null),
            ("aud", json!("other")),
            ("aud", Value::Null),
            ("exp", json!(now() - 300)),
            ("exp", json!("tomorrow")),
            ("exp", Value::Null),
            ("nbf", json!(now() + 300)),
            ("nbf", json!("yesterday")),
            ("sub", json!("")),
            ("sub", json!("a\nb")),
            ("sub", json!("local ")),
            ("sub", json!("local\u{200b}")),
            ("sub", json!("l\u{43e}cal")),
            ("sub", json!("x".repeat(MAX_NAME_BYTES + 1))),
            ("sub", Value::Null),
            ("troupe_role", json!("root")),
            ("troupe_role", Value::Null),
        ] {
            let token = provider.token(&with(name, value.clone()));
            assert_eq!(who(&jwt, &token), None, "{name} {value}");
        }
        // A critical extension.
        for critical in [vec![], vec!["b64".to_owned()], vec!["exp".to_owned()]] {
            let header = Header {
                kid: Some(provider.id.to_owned()),
                crit: Some(critical),
                ..Header::new(Algorithm::ES256)
            };
            let key = EncodingKey::from_ec_der(&provider.key.serialize_der());
            assert_eq!(who(&jwt, &encode(&header, &claims(), &key).unwrap()), None);
        }
        // Another key with that id, no signature, and a signature made from public data.
        assert_eq!(who(&jwt, &Provider::new("one").token(&claims())), None);
        assert_eq!(who(&jwt, &Provider::new("two").token(&claims())), None);
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        for algorithm in ["none", "HS256"] {
            let head = json!({"alg": algorithm, "kid": "one"});
            assert_eq!(who(&jwt, &format!("{}.{}.AAAA", part(&head), part(&claims()))), None);
        }
        for token in ["", ".", "..", "a.b.c", &"x".repeat(MAX_SHOWN_BYTES)] {
            assert_eq!(who(&jwt, token), None);
        }
    }

    #[test]
    fn service_account_gets_role_of_its_subject() {
        const ACCOUNT: &str = "system:serviceaccount:troupe:troupe-runner";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let provider = Provider::new("one");
        provider.publish(&path);
        let load = |grant: String, known| {
            let options = JwtOptions {
                jwt_issuer: Some("https://id.example.org".to_owned()),
                jwt_audience: Some("troupe".to_owned()),
                jwt_keys: Some(KeysAt::File(path.clone())),
                jwt_roles: vec![grant.parse().unwrap()],
                ..JwtOptions::default()
            };
            Jwt::load(options, known).map(Option::unwrap)
        };
        // Claims as a cluster issues them: a list of audiences, no role, and claims about the pod.
        let claims = |subject: &str, audience: &str| {
            json!({
                "iss": "https://id.example.org", "aud": [audience], "sub": subject, "exp": now() + 3600, "nbf": now(),
                "kubernetes.io": {"namespace": "troupe", "serviceaccount": {"name": "troupe-runner"}},
            })
        };
        let token = |subject, audience| provider.token(&claims(subject, audience));
        let runners = load(format!("sub:{ACCOUNT}=runner"), Machine::Runner).unwrap();
        let is = |kind: &str| Some((format!("{kind}:{ACCOUNT}"), false));
        assert_eq!(who(&runners, &token(ACCOUNT, "troupe")), is("runner"));
        assert_eq!(who(&runners, &token(ACCOUNT, "https://kubernetes.default.svc")), None);
        assert_eq!(
            who(&runners, &token("system:serviceaccount:troupe:default", "troupe")),
            None
        );
        assert_eq!(
            who(&runners, &token("system:serviceaccount:other:troupe-runner", "troupe")),
            None
        );
        let ids = |pod: Value| {
            let mut claims = claims(ACCOUNT, "troupe");
            claims["kubernetes.io"]["pod"] = pod;
            match runners.verify(&provider.token(&claims)) {
                Some(Principal::Runner { ids, .. }) => ids,
                other => panic!("{other:?} is not a runner"),
            }
        };
        assert_eq!(ids(json!({"name": "runner-0"})), RunnerIds::Pod("runner-0".to_owned()));
        assert_eq!(ids(Value::Null), RunnerIds::Any);
        let services = load(format!("sub:{ACCOUNT}=service"), Machine::Service).unwrap();
        assert_eq!(who(&services, &token(ACCOUNT, "troupe")), is("service"));
        let refused = load(format!("sub:{ACCOUNT}=service"), Machine::Runner).unwrap_err();
        assert!(refused.to_string().contains(ACCOUNT), "{refused}");
    }

    #[test]
    fn replaced_keys_are_used_if_valid() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let (old, new) = (Provider::new("old"), Provider::new("new"));
        old.publish(&path);
        let jwt = checker(&path);
        fs::write(&path, "half a file").unwrap();
        assert!(who(&jwt, &old.token(&claims())).is_some());
        new.publish(&path);
        assert!(who(&jwt, &new.token(&claims())).is_some());
        assert!(who(&jwt, &old.token(&claims())).is_none());

        let options = JwtOptions {
            jwt_issuer: Some("i".to_owned()),
            jwt_audience: Some("a".to_owned()),
            jwt_keys: Some(KeysAt::File(directory.path().join("missing"))),
            ..JwtOptions::default()
        };
        let load = |options| Jwt::load(options, Machine::Runner);
        assert!(load(options.clone()).unwrap_err().to_string().contains("missing"));
        assert!(load(JwtOptions::default()).unwrap().is_none());

        // Options for requests that are never made are an error.
        let path = directory.path().join("keys.json");
        let with_token = JwtOptions {
            jwt_keys: Some(KeysAt::File(path.clone())),
            jwt_keys_token: Some(path),
            ..options
        };
        let refused = load(with_token).unwrap_err().to_string();
        assert!(
            refused.contains("--jwt-keys-token") && refused.contains("keys.json"),
            "{refused}"
        );
    }
}
