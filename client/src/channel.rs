//! Channels that send the caller's token.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderValue,
    header::{AUTHORIZATION, HeaderName},
};
use http_body_util::{BodyExt as _, Full};
use tonic::{Code, body::Body, transport::Channel};
use tower::{BoxError, Service};
use troupe_proto::{
    MAX_MESSAGE_BYTES, registry::v1::agent_registry_service_client::AgentRegistryServiceClient,
    supervisor::v1::agent_supervisor_service_client::AgentSupervisorServiceClient,
};

use crate::{error::Error, token::Token};

/// The gRPC status code. It is a response header if a call fails before its first message.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// A client of the supervisor.
pub type Supervisor = AgentSupervisorServiceClient<Identified>;
/// A client of the registry.
pub type Registry = AgentRegistryServiceClient<Identified>;

/// A channel that adds the caller's token to each call.
///
/// A token found in the data directory may belong to another service: the registry may use other tokens or none, and
/// another pair may listen at the address. A call that fails because of such a token is repeated without a token. A
/// token that the caller named is always sent.
///
/// With a token from the data directory, the messages of a stream of requests are collected before the call. Therefore
/// a bidirectional stream needs a token that the caller named.
#[derive(Clone, Debug)]
pub struct Identified {
    channel: Channel,
    bearer: Option<HeaderValue>,
    is_found: bool,
}

impl Identified {
    /// Wraps `channel` so that its calls carry `token`.
    ///
    /// # Errors
    ///
    /// [`Error::TokenCharacters`].
    pub fn new(channel: Channel, token: &Token) -> Result<Self, Error> {
        Ok(Self {
            channel,
            bearer: bearer(token)?,
            is_found: token.is_found(),
        })
    }

    /// Returns a client of the supervisor behind the channel.
    #[must_use]
    pub fn supervisor(self) -> Supervisor {
        AgentSupervisorServiceClient::new(self).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Returns a client of the registry behind the channel.
    #[must_use]
    pub fn registry(self) -> Registry {
        AgentRegistryServiceClient::new(self).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }
}

impl Service<http::Request<Body>> for Identified {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
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
            let body: Bytes = body.collect().await?.to_bytes();
            let copy = |body: Bytes| http::Request::from_parts(parts.clone(), Body::new(Full::new(body)));
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
fn bearer(token: &Token) -> Result<Option<HeaderValue>, Error> {
    let Some(text) = token.expose() else {
        return Ok(None);
    };
    let mut value = HeaderValue::try_from(format!("Bearer {text}")).map_err(|_| Error::TokenCharacters)?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Returns whether a call failed because of its token.
#[must_use]
pub fn is_unauthenticated(answer: &http::Response<Body>) -> bool {
    let status = answer.headers().get(GRPC_STATUS);
    status.is_some_and(|status| Code::from_bytes(status.as_bytes()) == Code::Unauthenticated)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn error_does_not_repeat_unsendable_token() {
        let error = bearer(&Token::given("line\nbreak")).unwrap_err();
        assert!(!error.to_string().contains("break"), "{error}");
    }
}
