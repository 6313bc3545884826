//! Connections to the two services.

use std::time::Duration;

use svc_kit::{
    listen::is_this_machine,
    tls::{self, ClientFiles},
};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint, Uri},
};
use troupe_proto::{
    MAX_MESSAGE_BYTES, registry::v1::agent_registry_service_client::AgentRegistryServiceClient,
    supervisor::v1::agent_supervisor_service_client::AgentSupervisorServiceClient,
};
use uuid::Uuid;

use crate::{
    args::Global,
    error::{Error, Result},
    token::Token,
};

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a silent connection is asked whether it still lives.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// A channel whose calls say who makes them.
type Identified = InterceptedService<Channel, Bearer>;
/// The supervisor.
pub(crate) type Supervisor = AgentSupervisorServiceClient<Identified>;
/// The registry.
pub(crate) type Registry = AgentRegistryServiceClient<Identified>;

/// Puts the token into the metadata of every call.
#[derive(Clone, Debug)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// The metadata for a token.
    ///
    /// # Errors
    ///
    /// If the token has characters that no header can carry.
    pub(crate) fn new(token: &Token) -> Result<Self> {
        let Some(text) = token.expose() else {
            return Ok(Self(None));
        };
        let mut value = MetadataValue::try_from(format!("Bearer {text}"))
            .map_err(|_| Error::usage("the token has characters that cannot be sent; it is visible ASCII"))?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> std::result::Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// The supervisor that the command line names.
pub(crate) async fn supervisor(global: &Global) -> Result<Supervisor> {
    let target = Target::supervisor(global)?;
    let token = Token::find(global, target.host())?;
    supervisor_at(&target, &token).await
}

/// The registry that the command line names.
pub(crate) async fn registry(global: &Global) -> Result<Registry> {
    let target = Target::registry(global)?;
    let token = Token::find(global, target.host())?;
    registry_at(&target, &token).await
}

/// A supervisor somewhere.
pub(crate) async fn supervisor_at(target: &Target, token: &Token) -> Result<Supervisor> {
    let client = AgentSupervisorServiceClient::with_interceptor(target.connect().await?, Bearer::new(token)?);
    Ok(client.max_decoding_message_size(MAX_MESSAGE_BYTES))
}

/// A registry somewhere.
pub(crate) async fn registry_at(target: &Target, token: &Token) -> Result<Registry> {
    let client = AgentRegistryServiceClient::with_interceptor(target.connect().await?, Bearer::new(token)?);
    Ok(client.max_decoding_message_size(MAX_MESSAGE_BYTES))
}

/// A fresh request id: the call may be repeated and still happens once.
pub(crate) fn request_id() -> String {
    Uuid::now_v7().to_string()
}

/// A service's address, checked before anything is sent to it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    what: &'static str,
    uri: Uri,
    tls: ClientFiles,
}

impl Target {
    /// The supervisor that the command line names.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub(crate) fn supervisor(global: &Global) -> Result<Self> {
        Self::with(global, "supervisor", &global.supervisor)
    }

    /// The registry that the command line names.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub(crate) fn registry(global: &Global) -> Result<Self> {
        Self::with(global, "registry", &global.registry)
    }

    /// Whoever names certificates wants TLS: without it a token would leave this machine in plaintext.
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

    /// The address from the command line: a URL, or `host:port` of one.
    ///
    /// # Errors
    ///
    /// A usage error that shows what was expected.
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

    /// The host alone.
    pub(crate) fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// The address as it is shown.
    pub(crate) const fn uri(&self) -> &Uri {
        &self.uri
    }

    /// A connection. It comes back by itself when it is lost.
    ///
    /// # Errors
    ///
    /// If nothing answers there.
    pub(crate) async fn connect(&self) -> Result<Channel> {
        let endpoint = Endpoint::from(self.uri.clone())
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE);
        tls::connect(endpoint, &self.tls).await.map_err(|error| {
            Error::failure(format!(
                "cannot reach the {} at {}: {}",
                self.what,
                self.uri,
                root_cause(&error)
            ))
            .hint(format!(
                "`troupe up` starts the pair; --{} URL names another one; `troupe doctor` looks around",
                self.what
            ))
        })
    }
}

/// The innermost error: "connection refused" says more than "transport error".
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
    fn a_token_that_no_header_carries_is_a_usage_error() {
        let error = Bearer::new(&Token::given("line\nbreak")).unwrap_err();
        assert_eq!(error.code(), 2);
        assert!(!error.message().contains("break"), "the token is not repeated");
    }
}
