//! Authentication and the table of who may call what, as one layer in front of every service.
//!
//! [`Authenticator`] turns a bearer token into a [`Principal`]; [`Authority`] holds a service's table. A method without
//! a row is refused. Health and reflection are open to all. Finer rules (a thread's subtree, its tools, fields that
//! only operators may set) are the services' own and come after this.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{BoxFuture, Either, ready};
use http::{HeaderMap, HeaderValue, Request, Response, header::AUTHORIZATION};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::{Code, Status};
use tower::{Layer, Service};
use troupe_proto::{fault::Fault, reason::Reason};

use crate::{
    audit::{Audit, Entry},
    call::code,
    identity::{OperatorRole, Principal},
    jwt::{Jwt, MAX_JWT_BYTES},
    listen::is_loopback,
    peer::Peer,
    thread_token::TokenKeys,
    token_file::Tokens,
};

/// The one text for every failed authentication: which of its causes it was helps only an attacker.
const UNAUTHENTICATED: &str = r#"missing, malformed or stale token; send "authorization: Bearer TOKEN""#;

/// Open to all: they say that the service lives and what its API is, both public.
const OPEN: &[&str] = &[
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1.ServerReflection/",
    "/grpc.reflection.v1alpha.ServerReflection/",
];

/// Of these, the methods that stream.
pub(crate) const OPEN_STREAMS: &[&str] = &[
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Set by proxies: a call that carries one does not come from where its connection comes from.
const FORWARDED: &[&str] = &["forwarded", "x-forwarded-for", "x-real-ip"];

/// Operators that no provider and no authority vouches for: of a static token, and those who need none.
const OWN_OPERATORS: &[&str] = &["local", LOOPBACK, ANONYMOUS];
const LOOPBACK: &str = "loopback";
const ANONYMOUS: &str = "anonymous";

/// How much of a method's path an error quotes; more than any method of ours has.
const QUOTED_BYTES: usize = 128;

/// Whether a method (its full path) is open to all.
#[must_use]
pub fn is_open(method: &str) -> bool {
    OPEN.iter().any(|prefix| method.starts_with(prefix))
}

/// The answer to every failed authentication: no token, a bad one, a stale one.
#[must_use]
pub fn unauthenticated() -> Status {
    Fault::new(Code::Unauthenticated, Reason::Unauthenticated, UNAUTHENTICATED).into()
}

/// Who is an operator without a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Nobody.
    #[default]
    Nobody,
    /// Callers from loopback: where no agent's programs run on this machine, or the user asked for it.
    Loopback,
    /// Everybody, from anywhere: `--insecure` was spelled out, and nothing was configured by which people are known. A
    /// token that a service makes by itself is not asked for.
    Everybody,
}

impl Trust {
    /// Whom a service trusts that asks its callers who they are, or does not. What was configured wins over
    /// `--insecure`, so that one which was left behind opens nothing.
    #[must_use]
    pub const fn of(asks: bool, insecure: bool) -> Self {
        match (asks, insecure) {
            (true, _) => Self::Nobody,
            (false, true) => Self::Everybody,
            (false, false) => Self::Loopback,
        }
    }
}

/// Finds the principal behind a call.
#[derive(Debug, Default)]
pub struct Authenticator {
    secrets: Vec<(Tokens, Principal)>,
    threads: Option<Arc<TokenKeys>>,
    jwt: Option<Arc<Jwt>>,
    trust: Trust,
}

impl Authenticator {
    /// One that knows nobody and trusts nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts `tokens` as those of an operator.
    #[must_use]
    pub fn operator(self, name: impl Into<String>, role: OperatorRole, tokens: impl Into<Tokens>) -> Self {
        let name = name.into();
        self.secret(tokens, Principal::Operator { name, role })
    }

    /// Accepts `tokens` as those of a runner.
    #[must_use]
    pub fn runner(self, name: impl Into<String>, tokens: impl Into<Tokens>) -> Self {
        let name = name.into();
        self.secret(tokens, Principal::Runner { name })
    }

    /// Accepts `tokens` as those of another service.
    #[must_use]
    pub fn service(self, name: impl Into<String>, tokens: impl Into<Tokens>) -> Self {
        let name = name.into();
        self.secret(tokens, Principal::Service { name })
    }

    /// Accepts the thread tokens of these keys.
    #[must_use]
    pub fn threads(mut self, keys: Arc<TokenKeys>) -> Self {
        self.threads = Some(keys);
        self
    }

    /// Accepts the tokens of an identity provider as those of operators.
    #[must_use]
    pub fn jwt(mut self, jwt: Option<Arc<Jwt>>) -> Self {
        self.jwt = jwt;
        self
    }

    /// Who is an operator without a token; nobody unless said here.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// The caller, from the headers of the call and its connection; `None` is UNAUTHENTICATED. A token that is there is
    /// never ignored: a bad one is refused where none would be trusted. Without one the certificate of the connection
    /// counts.
    #[must_use]
    pub fn authenticate(&self, headers: &HeaderMap, peer: &Peer) -> Option<Principal> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => match &peer.principal {
                Some(principal) => self.vouched((**principal).clone()),
                None => self.without_token(headers, peer.address.map(|address| address.ip())),
            },
            (Some(value), None) => self.by_token(bearer(value)?),
            (Some(_), Some(_)) => None,
        }
    }

    fn secret(mut self, tokens: impl Into<Tokens>, principal: Principal) -> Self {
        self.secrets.push((tokens.into(), principal));
        self
    }

    fn by_token(&self, token: &str) -> Option<Principal> {
        let mut found = None;
        // Every secret is compared, whichever matches, so the time tells nothing.
        for (tokens, principal) in &self.secrets {
            if tokens.matches(token) {
                found = Some(principal);
            }
        }
        found
            .cloned()
            .or_else(|| self.threads.as_ref()?.verify(token).map(Principal::Thread))
            .or_else(|| self.vouched(self.jwt.as_ref()?.verify(token)?))
    }

    /// Whom a provider or an authority vouches for, unless the name is that of an operator of this service's own: the two
    /// would share request ids, and be one in logs and events.
    fn vouched(&self, principal: Principal) -> Option<Principal> {
        let Principal::Operator { name, .. } = &principal else {
            return Some(principal);
        };
        let is_own = |own: &Principal| matches!(own, Principal::Operator { name: taken, .. } if taken == name);
        if OWN_OPERATORS.contains(&name.as_str()) || self.secrets.iter().any(|(_, own)| is_own(own)) {
            tracing::warn!(
                operator = name.as_str(),
                "a JWT or a certificate is refused: this service has an operator of that name itself"
            );
            return None;
        }
        Some(principal)
    }

    fn without_token(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<Principal> {
        let name = match self.trust {
            Trust::Nobody => return None,
            Trust::Everybody => ANONYMOUS,
            Trust::Loopback => {
                let direct = !FORWARDED.iter().any(|name| headers.contains_key(*name));
                (direct && peer.is_some_and(is_loopback)).then_some(LOOPBACK)?
            }
        };
        Some(Principal::Operator {
            name: name.to_owned(),
            role: OperatorRole::Admin,
        })
    }
}

/// The token of an `authorization` value; `None` if it is not one bearer token of a bounded length.
fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && (1..=MAX_JWT_BYTES).contains(&token.len())).then_some(token)
}

/// A kind of principal, as the table names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// An operator who may do everything.
    Admin,
    /// An operator who may read.
    Viewer,
    /// A thread.
    Thread,
    /// A runner.
    Runner,
    /// Another service.
    Service,
}

impl Caller {
    /// The kind of a principal.
    #[must_use]
    pub const fn of(principal: &Principal) -> Self {
        match principal {
            Principal::Operator { role, .. } => match role {
                OperatorRole::Admin => Self::Admin,
                OperatorRole::Viewer => Self::Viewer,
            },
            Principal::Thread(_) => Self::Thread,
            Principal::Runner { .. } => Self::Runner,
            Principal::Service { .. } => Self::Service,
        }
    }
}

/// Who may call one method.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The method's full path: `/troupe.supervisor.v1.AgentSupervisorService/SpawnAgent`.
    pub method: &'static str,
    /// Who may call it. Nobody else may.
    pub who: &'static [Caller],
    /// What it does.
    pub effect: Effect,
}

/// What a method does to what a service holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that outlasts the call or its caller's own view.
    Reads,
    /// It changes something, so its calls are in the audit log.
    Changes,
}

/// A service's table of who may call what, ready for looking up.
#[derive(Clone, Debug)]
pub struct Authority {
    rows: HashMap<&'static str, Row>,
}

impl Authority {
    /// The table of these rows.
    #[must_use]
    pub fn new(table: &'static [Row]) -> Self {
        Self {
            rows: table.iter().map(|row| (row.method, *row)).collect(),
        }
    }

    /// The method of that path, if it changes something.
    fn changing(&self, method: &str) -> Option<&'static str> {
        let row = self.rows.get(method)?;
        (row.effect == Effect::Changes).then_some(row.method)
    }

    /// Whether a principal may call a method.
    ///
    /// # Errors
    ///
    /// PERMISSION_DENIED NOT_PERMITTED, naming the kind of principal and the method.
    pub fn check(&self, method: &str, principal: &Principal) -> Result<(), Status> {
        let row = self.rows.get(method);
        if row.is_some_and(|row| row.who.contains(&Caller::of(principal))) {
            return Ok(());
        }
        let kind = principal.kind();
        let quoted = quote(method);
        let message = match row {
            Some(_) => format!("a caller of kind {kind} may not call {quoted}"),
            None => {
                format!("a caller of kind {kind} may not call {quoted}: this service opens no such method to anyone")
            }
        };
        Err(Fault::new(Code::PermissionDenied, Reason::NotPermitted, message)
            .with("principal", kind)
            .with("method", quoted)
            .into())
    }
}

/// A method as errors and logs show it: bounded, because its length is the caller's.
pub(crate) fn quote(method: &str) -> &str {
    let mut end = method.len().min(QUOTED_BYTES);
    while !method.is_char_boundary(end) {
        end -= 1;
    }
    &method[..end]
}

/// What is wrong with a table, for the test in each service that walks the descriptors: methods of `services` without a
/// row, rows that name no such method, methods with two rows. Empty when each method has exactly one row.
#[must_use]
pub fn rows_missing(descriptor_set: &[u8], services: &[&str], table: &[Row]) -> Vec<String> {
    let set = match FileDescriptorSet::decode(descriptor_set) {
        Ok(set) => set,
        Err(error) => return vec![format!("the descriptor set does not decode: {error}")],
    };
    let mut found = BTreeSet::new();
    let mut methods = BTreeSet::new();
    for file in &set.file {
        for service in &file.service {
            let name = format!("{}.{}", file.package(), service.name());
            if services.contains(&name.as_str()) {
                methods.extend(service.method.iter().map(|method| format!("/{name}/{}", method.name())));
                found.insert(name);
            }
        }
    }
    let mut problems = Vec::new();
    for service in services.iter().filter(|service| !found.contains(**service)) {
        problems.push(format!("no such service: {service}"));
    }
    let mut rows = BTreeSet::new();
    for row in table {
        if !rows.insert(row.method) {
            problems.push(format!("two rows: {}", row.method));
        }
        if !methods.contains(row.method) {
            problems.push(format!("a row without a method: {}", row.method));
        }
    }
    for method in methods.iter().filter(|method| !rows.contains(method.as_str())) {
        problems.push(format!("a method without a row: {method}"));
    }
    problems
}

/// Puts [`Auth`] in front of a server: every call has a [`Principal`] that may make it, or is refused.
#[derive(Clone, Debug)]
pub struct AuthLayer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    authenticator: Authenticator,
    authority: Authority,
    audit: Audit,
}

impl AuthLayer {
    /// The layer of a service with this table.
    #[must_use]
    pub fn new(authenticator: Authenticator, table: &'static [Row]) -> Self {
        Self {
            shared: Arc::new(Shared {
                authenticator,
                authority: Authority::new(table),
                audit: Audit::default(),
            }),
        }
    }

    /// The methods that the table has, by their full paths.
    pub(crate) fn methods(&self) -> impl Iterator<Item = &'static str> {
        self.shared.authority.rows.keys().copied()
    }
}

impl<S> Layer<S> for AuthLayer {
    type Service = Auth<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Auth {
            inner,
            shared: Arc::clone(&self.shared),
        }
    }
}

/// The service that [`AuthLayer`] makes.
#[derive(Clone, Debug)]
pub struct Auth<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S, B, R> Service<Request<B>> for Auth<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, BoxFuture<'static, Result<S::Response, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let admitted = self.shared.admit(&mut request);
        let changing = self.shared.authority.changing(request.uri().path());
        let entry = changing.and_then(|method| Entry::of(method, &request));
        match (admitted, entry) {
            (Ok(()), None) => Either::Left(self.inner.call(request)),
            (Ok(()), Some(entry)) => {
                let (begun, work) = (self.shared.audit.begin(entry), self.inner.call(request));
                Either::Right(Box::pin(async move {
                    let answer = work.await;
                    if let Ok(response) = &answer {
                        begun.end(code(response.headers()));
                    }
                    answer
                }))
            }
            (Err(refusal), entry) => {
                if let Some(entry) = entry {
                    self.shared.audit.write(&entry, refusal.code());
                }
                Either::Right(Box::pin(ready(Ok(refusal.into_http()))))
            }
        }
    }
}

impl Shared {
    fn admit<B>(&self, request: &mut Request<B>) -> Result<(), Status> {
        if is_open(request.uri().path()) {
            return Ok(());
        }
        let unknown = Peer::default();
        let peer = request.extensions().get::<Peer>().unwrap_or(&unknown);
        let principal = self
            .authenticator
            .authenticate(request.headers(), peer)
            .ok_or_else(unauthenticated)?;
        // What handlers cannot see they cannot log.
        request.headers_mut().remove(AUTHORIZATION);
        let allowed = self.authority.check(request.uri().path(), &principal);
        // The audit log names whoever is refused, too.
        request.extensions_mut().insert(principal);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, net::SocketAddr};

    use tower::{ServiceExt as _, service_fn};
    use troupe_proto::fault::{metadata_of, reason_of};
    use uuid::Uuid;

    use super::*;
    use crate::{identity::ThreadPrincipal, secret::SecretToken};

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

    /// The principal that reaches the handler, or the refusal.
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
    async fn each_token_is_its_principal_and_the_table_decides() {
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
                    assert_eq!(status.code(), Code::PermissionDenied, "{scope} {method}");
                    assert_eq!(reason_of(&status), Some(Reason::NotPermitted));
                    assert_eq!(metadata_of(&status)["method"], method);
                    assert!(status.message().contains(method), "{}", status.message());
                }
            }
        }
    }

    #[tokio::test]
    async fn every_bad_token_gets_the_one_answer_even_from_trusted_callers() {
        let cast = Cast::new();
        let foreign = Cast::new().thread();
        let long = format!("Bearer {}", "x".repeat(MAX_JWT_BYTES + 1));
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
    fn trust_without_a_token_depends_on_the_address() {
        let at = |address: &str| Peer {
            address: Some(SocketAddr::new(address.parse().unwrap(), 1234)),
            principal: None,
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
    async fn health_and_reflection_are_open_and_nothing_that_looks_like_them() {
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
    fn a_certificate_counts_where_there_is_no_token() {
        let runner = Principal::Runner { name: "box".to_owned() };
        let peer = Peer {
            address: None,
            principal: Some(Arc::new(runner.clone())),
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
    fn nobody_is_vouched_for_under_the_name_of_an_operator_of_our_own() {
        let cast = Cast::new();
        let of = |name: &str, role| {
            let name = name.to_owned();
            let principal = Some(Arc::new(Principal::Operator { name, role }));
            let peer = Peer {
                address: None,
                principal,
            };
            cast.authenticator().authenticate(&HeaderMap::new(), &peer)
        };
        for role in [OperatorRole::Admin, OperatorRole::Viewer] {
            for name in ["ann", "vic", "local", "loopback", "anonymous"] {
                assert_eq!(of(name, role), None, "{name}");
            }
            // The names of runners and services are theirs.
            for name in ["eve", "box", "supervisor"] {
                assert!(of(name, role).is_some(), "{name}");
            }
        }
    }

    #[tokio::test]
    async fn the_peer_address_is_that_of_the_connection() {
        let peer: SocketAddr = "127.0.0.1:1234".parse().unwrap();
        let mut request = request(READ, &[]);
        request.extensions_mut().insert(Peer {
            address: Some(peer),
            principal: None,
        });
        let authenticator = Authenticator::new().trust(Trust::Loopback);
        let principal = call(authenticator, request).await.unwrap().unwrap();
        assert_eq!(principal.scope_key(), "operator:loopback");
    }

    #[test]
    fn a_table_that_does_not_fit_the_descriptors_is_named() {
        let set = tonic_health::pb::FILE_DESCRIPTOR_SET;
        let check = Row {
            method: "/grpc.health.v1.Health/Check",
            who: &[],
            effect: Effect::Reads,
        };
        let watch = Row {
            method: "/grpc.health.v1.Health/Watch",
            who: &[],
            effect: Effect::Reads,
        };
        let stale = Row {
            method: "/grpc.health.v1.Health/Gone",
            who: &[],
            effect: Effect::Reads,
        };
        let service = &["grpc.health.v1.Health"];
        let problems = rows_missing(set, service, &[check, check, stale]);
        assert_eq!(
            problems
                .iter()
                .filter(|problem| problem.starts_with("a method"))
                .collect::<Vec<_>>(),
            rows_missing(set, service, &[check]).iter().collect::<Vec<_>>()
        );
        assert!(problems.contains(&"two rows: /grpc.health.v1.Health/Check".to_owned()));
        assert!(problems.contains(&"a row without a method: /grpc.health.v1.Health/Gone".to_owned()));
        assert!(problems.contains(&"a method without a row: /grpc.health.v1.Health/Watch".to_owned()));
        assert!(
            !rows_missing(set, service, &[check, watch])
                .iter()
                .any(|problem| problem.contains("Check"))
        );
        assert_eq!(
            rows_missing(set, &["none.v1.None"], &[]),
            ["no such service: none.v1.None"]
        );
        assert_eq!(rows_missing(&[0xff], &[], &[]).len(), 1);
    }

    #[test]
    fn quoted_methods_are_bounded_whatever_they_hold() {
        assert_eq!(quote(READ), READ);
        assert_eq!(quote(&"é".repeat(500)).len(), QUOTED_BYTES);
        assert!(quote(&format!("/{}", "é".repeat(500))).len() < QUOTED_BYTES + 1);
    }

    #[test]
    fn what_is_configured_wins_over_insecure() {
        for (asks, insecure, expected) in [
            (true, true, Trust::Nobody),
            (true, false, Trust::Nobody),
            (false, true, Trust::Everybody),
            (false, false, Trust::Loopback),
        ] {
            assert_eq!(Trust::of(asks, insecure), expected);
        }
    }
}
