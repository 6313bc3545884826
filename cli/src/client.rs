//! Connections to the supervisor and the registry.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue,
    header::{AUTHORIZATION, HeaderName},
};
use http_body_util::{BodyExt as _, Full};
use svc_kit::{
    listen::is_this_machine,
    tls::{self, ClientFiles},
};
use tonic::{
    Code,
    body::Body,
    transport::{Channel, Endpoint, Uri},
};
use tower::{BoxError, Service};
use troupe_proto::{
    MAX_MESSAGE_BYTES, registry::v1::agent_registry_service_client::AgentRegistryServiceClient,
    supervisor::v1::agent_supervisor_service_client::AgentSupervisorServiceClient,
};
use uuid::Uuid;

use crate::{
    error::{Error, Result},
    global::Global,
    token::Token,
};

/// Maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of HTTP/2 keep-alive pings on a silent connection.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The gRPC status code. It is a response header if a call fails before its first message.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// A client of the supervisor.
pub(crate) type Supervisor = AgentSupervisorServiceClient<Identified>;
/// A client of the registry.
pub(crate) type Registry = AgentRegistryServiceClient<Identified>;

/// A channel that adds the caller's token to each call.
///
/// A token found in the data directory may belong to another service: the registry may use other tokens or none, and
/// another pair may listen at the address. A call that fails because of such a token is repeated without a token. A
/// token that the caller named is always sent.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    channel: Channel,
    bearer: Option<HeaderValue>,
    is_found: bool,
}

impl Identified {
    /// Wraps `channel` so that its calls carry `token`.
    ///
    /// # Errors
    ///
    /// Fails if the token has characters that a header cannot carry.
    fn new(channel: Channel, token: &Token) -> Result<Self> {
        Ok(Self {
            channel,
            bearer: bearer(token)?,
            is_found: token.is_found(),
        })
    }
}

impl Service<http::Request<Body>> for Identified {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = std::result::Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<(), BoxError>> {
        self.channel.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        // The clone replaces the channel that `poll_ready` reserved for this call.
        let clone = self.channel.clone();
        let mut channel = std::mem::replace(&mut self.channel, clone);
        let Some(bearer) = self.bearer.clone() else {
            return Box::pin(async move { Ok(channel.call(request).await?) });
        };
        if !self.is_found {
            request.headers_mut().insert(AUTHORIZATION, bearer);
            return Box::pin(async move { Ok(channel.call(request).await?) });
        }
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            // Every request of the command line is a single message, or a bundle of at most 16 MiB.
            let body: Bytes = body.collect().await?.to_bytes();
            let copy = |body: Bytes| {
                let mut copy = http::Request::new(Body::new(Full::new(body)));
                *copy.method_mut() = parts.method.clone();
                *copy.uri_mut() = parts.uri.clone();
                *copy.version_mut() = parts.version;
                *copy.headers_mut() = parts.headers.clone();
                copy
            };
            let mut first = copy(body.clone());
            first.headers_mut().insert(AUTHORIZATION, bearer);
            let answer = channel.call(first).await?;
            if !is_unauthenticated(&answer) {
                return Ok(answer);
            }
            std::future::poll_fn(|context| channel.poll_ready(context)).await?;
            Ok(channel.call(copy(body)).await?)
        })
    }
}

/// Returns the `authorization` header for a token, or `None` without a token.
///
/// # Errors
///
/// Fails if the token has characters that a header cannot carry.
fn bearer(token: &Token) -> Result<Option<HeaderValue>> {
    let Some(text) = token.expose() else {
        return Ok(None);
    };
    let mut value = HeaderValue::try_from(format!("Bearer {text}"))
        .map_err(|_| Error::usage("the token has characters that cannot be sent; it is visible ASCII"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Returns whether a call failed because of its token.
pub(crate) fn is_unauthenticated(answer: &http::Response<Body>) -> bool {
    let status = answer.headers().get(GRPC_STATUS);
    status.is_some_and(|status| Code::from_bytes(status.as_bytes()) == Code::Unauthenticated)
}

/// Connects to the supervisor that the command line names.
pub(crate) async fn supervisor(global: &Global) -> Result<Supervisor> {
    Ok(supervisor_over(supervisor_channel(global).await?))
}

/// Connects to the registry that the command line names.
pub(crate) async fn registry(global: &Global) -> Result<Registry> {
    let client = AgentRegistryServiceClient::new(registry_channel(global).await?);
    Ok(client.max_decoding_message_size(MAX_MESSAGE_BYTES))
}

/// Opens a channel to the supervisor that the command line names.
pub(crate) async fn supervisor_channel(global: &Global) -> Result<Identified> {
    Target::supervisor(global)?.connect_as(global).await
}

/// Opens a channel to the registry that the command line names.
pub(crate) async fn registry_channel(global: &Global) -> Result<Identified> {
    Target::registry(global)?.connect_as(global).await
}

/// Returns a client of the supervisor behind `channel`.
pub(crate) fn supervisor_over(channel: Identified) -> Supervisor {
    AgentSupervisorServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

/// Connects to the supervisor at `target`.
pub(crate) async fn supervisor_at(target: &Target, token: &Token) -> Result<Supervisor> {
    Ok(supervisor_over(Identified::new(target.connect().await?, token)?))
}

/// Connects to the registry at `target`.
pub(crate) async fn registry_at(target: &Target, token: &Token) -> Result<Registry> {
    let client = AgentRegistryServiceClient::new(Identified::new(target.connect().await?, token)?);
    Ok(client.max_decoding_message_size(MAX_MESSAGE_BYTES))
}

/// Returns a new request id, which makes a retried call idempotent.
pub(crate) fn request_id() -> String {
    Uuid::now_v7().to_string()
}

/// A validated service address.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    what: &'static str,
    uri: Uri,
    tls: ClientFiles,
}

impl Target {
    /// Returns the address of the supervisor that the command line names.
    ///
    /// # Errors
    ///
    /// See [`Self::parse`].
    pub(crate) fn supervisor(global: &Global) -> Result<Self> {
        Self::with(global, "supervisor", &global.supervisor)
    }

    /// Returns the address of the registry that the command line names.
    ///
    /// # Errors
    ///
    /// See [`Self::parse`].
    pub(crate) fn registry(global: &Global) -> Result<Self> {
        Self::with(global, "registry", &global.registry)
    }

    /// Parses the address. Certificate flags require an `https` URL: with `http`, the token would leave this machine in
    /// plaintext.
    fn with(global: &Global, what: &'static str, text: &str) -> Result<Self> {
        let tls = global.tls.files();
        let wants_tls = tls != ClientFiles::default();
        let has_scheme = text.contains("://");
        let text = match wants_tls && !has_scheme {
            true => format!("https://{}", text.trim()),
            false => text.to_owned(),
        };
        let target = Self {
            tls,
            ..Self::parse(what, &text)?
        };
        let is_plain = target.uri.scheme_str() == Some("http");
        if wants_tls && is_plain && !is_this_machine(target.host()) {
            return Err(Error::usage(format!("the {what} at {text} is not reached over TLS"))
                .hint("leave --ca and --client-cert out, or give a URL that begins with https"));
        }
        Ok(target)
    }

    /// Parses an address from the command line: a URL, or the `host:port` of one.
    ///
    /// # Errors
    ///
    /// Returns a usage error that shows the expected form.
    pub(crate) fn parse(what: &'static str, text: &str) -> Result<Self> {
        let text = text.trim();
        let url = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let port = if what == "registry" { 50_051 } else { 50_052 };
        let expected = || {
            Error::usage(format!("invalid address of the {what}: {text:?}"))
                .hint(format!("expected a URL like --{what} http://127.0.0.1:{port}"))
        };
        let uri: Uri = url.parse().map_err(|_| expected())?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(Self {
                what,
                uri,
                tls: ClientFiles::default(),
            }),
            _ => Err(expected()),
        }
    }

    /// Returns the host without the port.
    pub(crate) fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// Returns the address as displayed.
    pub(crate) const fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Opens a channel with the token that the command line names.
    async fn connect_as(&self, global: &Global) -> Result<Identified> {
        let token = Token::find(global, self.host())?;
        Identified::new(self.connect().await?, &token)
    }

    /// Opens a connection, which reconnects by itself when it is lost.
    ///
    /// # Errors
    ///
    /// Fails if the service cannot be reached.
    pub(crate) async fn connect(&self) -> Result<Channel> {
        let endpoint = Endpoint::from(self.uri.clone())
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE);
        tls::connect(endpoint, &self.tls).await.map_err(|error| {
            let cause = root_cause(&error);
            let hint = if self.uri.scheme_str() == Some("https") && is_plaintext_answer(&cause) {
                format!("the service does not use TLS; pass --{} http://...", self.what)
            } else {
                format!(
                    "`troupe up` starts the services; --{} URL selects another server; `troupe doctor` checks the \
                     installation",
                    self.what
                )
            };
            Error::unreachable(format!("cannot reach the {} at {}: {cause}", self.what, self.uri)).hint(hint)
        })
    }
}

/// Returns whether a TLS handshake failed because the other side answered in plaintext.
fn is_plaintext_answer(cause: &str) -> bool {
    cause.contains("corrupt message") || cause.contains("InvalidContentType")
}

/// Returns the innermost error: "connection refused" says more than "transport error".
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_or_host_and_port() {
        for text in ["http://127.0.0.1:50052", "127.0.0.1:50052", " localhost:50052 "] {
            let target = Target::parse("supervisor", text).unwrap();
            assert!(["127.0.0.1", "localhost"].contains(&target.host()), "{text}");
        }
        for text in ["", "ftp://host:1", "http://", "not an address"] {
            let error = Target::parse("supervisor", text).unwrap_err();
            assert_eq!(error.code(), 2, "{text}");
        }
    }

    #[test]
    fn unsendable_token_is_a_usage_error() {
        let error = bearer(&Token::given("line\nbreak")).unwrap_err();
        assert_eq!(error.code(), 2);
        assert!(!error.message().contains("break"), "the token is not repeated");
    }
}
