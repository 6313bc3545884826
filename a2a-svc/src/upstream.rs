//! Clients of the supervisor and the registry, which this service calls as an operator.

use std::time::Duration;

use http::{HeaderValue, header::AUTHORIZATION};
use prost_types::Timestamp;
use svc_kit::shown_token::ShownToken;
use tonic::{
    Status,
    metadata::MetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};
use troupe_client::tls::{self, ClientFiles};
use troupe_proto::{
    MAX_MESSAGE_BYTES,
    registry::v1::agent_registry_service_client::AgentRegistryServiceClient,
    supervisor::v1::{
        ContentRef, GetContentRequest, GetSessionRequest, Session,
        agent_supervisor_service_client::AgentSupervisorServiceClient,
    },
};

use crate::error::{Error, Kind, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Time limit of a call that does not wait for an agent.
const CALL_WITHIN: Duration = Duration::from_secs(30);

pub(crate) type Supervisor = AgentSupervisorServiceClient<InterceptedService<Channel, Bearer>>;
pub(crate) type Registry = AgentRegistryServiceClient<InterceptedService<Channel, Bearer>>;

/// The address of a service and the token for it.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The URL.
    pub url: String,
    /// The token. `None`: the service trusts this machine.
    pub token: Option<ShownToken>,
    /// The TLS files for an `https` URL.
    pub tls: ClientFiles,
}

/// Adds the token to each call.
#[derive(Clone)]
pub(crate) struct Bearer(Option<ShownToken>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: tonic::Request<()>) -> std::result::Result<tonic::Request<()>, Status> {
        if let Some(token) = &self.0 {
            let text = format!("Bearer {}", token.present().expose());
            let mut value =
                HeaderValue::try_from(text).map_err(|_| Status::internal("the token is not a valid header value"))?;
            value.set_sensitive(true);
            let value = MetadataValue::try_from(value.as_bytes())
                .map_err(|_| Status::internal("the token is not a valid header value"))?;
            request.metadata_mut().insert(AUTHORIZATION.as_str(), value);
        }
        Ok(request)
    }
}

impl Upstream {
    fn channel(&self) -> std::result::Result<InterceptedService<Channel, Bearer>, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(self.url.clone())?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE);
        let channel = tls::channel(&endpoint, &self.tls);
        Ok(InterceptedService::new(channel, Bearer(self.token.clone())))
    }

    /// Returns a client that connects on first use.
    pub(crate) fn supervisor(&self) -> std::result::Result<Supervisor, tonic::transport::Error> {
        Ok(AgentSupervisorServiceClient::new(self.channel()?).max_decoding_message_size(MAX_MESSAGE_BYTES))
    }

    /// Returns a client that connects on first use.
    pub(crate) fn registry(&self) -> std::result::Result<Registry, tonic::transport::Error> {
        Ok(AgentRegistryServiceClient::new(self.channel()?).max_decoding_message_size(MAX_MESSAGE_BYTES))
    }
}

/// Returns a request with the time limit of a short call.
pub(crate) fn brief<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(CALL_WITHIN);
    request
}

/// Reads a session. `None`: it does not exist.
pub(crate) async fn session(supervisor: &Supervisor, id: &str) -> Result<Option<Session>> {
    let request = GetSessionRequest {
        session_id: id.to_owned(),
    };
    match supervisor.clone().get_session(brief(request)).await {
        Ok(response) => Ok(response.into_inner().session),
        Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
        Err(status) => Err(status.into()),
    }
}

/// Reads a content of at most `limit` bytes. `None`: it is larger.
pub(crate) async fn content(
    supervisor: &Supervisor,
    session: &str,
    content: &ContentRef,
    limit: usize,
) -> Result<Option<Vec<u8>>> {
    if content.size > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Ok(None);
    }
    let request = GetContentRequest {
        session_id: session.to_owned(),
        digest: content.digest.clone(),
    };
    let mut parts = supervisor.clone().get_content(brief(request)).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(part) = parts.message().await? {
        bytes.extend_from_slice(&part.data);
        if bytes.len() > limit {
            return Err(Error::new(Kind::Internal, "a content is larger than its declared size"));
        }
    }
    Ok(Some(bytes))
}

/// Returns a key that orders times.
pub(crate) const fn time_key(time: &Timestamp) -> (i64, i32) {
    (time.seconds, time.nanos)
}
