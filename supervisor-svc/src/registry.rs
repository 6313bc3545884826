//! The supervisor's way to the registry, asked on every spawn. A resolve is a pure read, so it is retried where the
//! connection, not the registry, failed.

use std::time::Duration;

use svc_kit::{
    deadline::{self, Deadline},
    secret::SecretToken,
    trace_context::{self, TraceParent},
};
use tonic::{
    Code, Request, Status,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};
use troupe_proto::{
    MAX_MESSAGE_BYTES,
    common::v1::ResolvedSpawn,
    fault::Fault,
    reason::Reason,
    registry::v1::{ResolveSpawnRequest, agent_registry_service_client::AgentRegistryServiceClient},
};

/// How long a resolve may take, whatever the caller would wait.
const RESOLVE_WITHIN: Duration = Duration::from_secs(5);

/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// When a spawn that met no registry may be tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The registry, as the supervisor sees it.
#[derive(Clone, Debug)]
pub struct RegistryClient {
    client: AgentRegistryServiceClient<Channel>,
    token: Option<SecretToken>,
    url: String,
}

/// Why there is no resolution.
#[derive(Debug)]
pub enum Unresolved {
    /// The registry answered: this spawn is wrong. The status is passed on.
    Verdict(Status),
    /// The registry is away or overloaded; nothing is known about the spawn.
    Away(Status),
}

impl RegistryClient {
    /// A client of the registry at `url`. It connects when it is first needed, and again when the connection is lost.
    ///
    /// # Errors
    /// If `url` is no URL.
    pub fn new(url: &str, token: Option<SecretToken>) -> Result<Self, tonic::transport::Error> {
        let channel = Endpoint::from_shared(url.to_owned())?
            .connect_timeout(CONNECT_WITHIN)
            .tcp_nodelay(true)
            .connect_lazy();
        let client = AgentRegistryServiceClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self {
            client,
            token,
            url: url.to_owned(),
        })
    }

    /// What a spawn would get.
    ///
    /// # Errors
    /// See [`Unresolved`].
    pub async fn resolve(
        &self,
        request: ResolveSpawnRequest,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<ResolvedSpawn, Unresolved> {
        let first = self.attempt(request.clone(), deadline, trace).await;
        let answer = match first {
            Err(status) if lost_in_transport(&status) => self.attempt(request, deadline, trace).await,
            other => other,
        };
        answer.map_err(|status| self.judge(status))
    }

    async fn attempt(
        &self,
        request: ResolveSpawnRequest,
        deadline: Option<Deadline>,
        trace: &TraceParent,
    ) -> Result<ResolvedSpawn, Status> {
        let mut request = Request::new(request);
        deadline::limit(&mut request, deadline, RESOLVE_WITHIN);
        trace_context::inject(request.metadata_mut(), trace);
        if let Some(token) = &self.token
            && let Ok(mut value) = MetadataValue::try_from(format!("Bearer {}", token.expose()))
        {
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        let answer = self.client.clone().resolve_spawn(request).await?.into_inner();
        answer
            .resolved
            .ok_or_else(|| Status::internal("the registry answered without a resolution"))
    }

    fn judge(&self, status: Status) -> Unresolved {
        match status.code() {
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented => Unresolved::Verdict(status),
            Code::PermissionDenied if troupe_proto::fault::reason_of(&status) != Some(Reason::NotPermitted) => {
                Unresolved::Verdict(status)
            }
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
            | Code::Unauthenticated => {
                tracing::warn!(url = self.url, %status, "the registry did not resolve a spawn");
                let text = format!(
                    "the registry at {} is not available ({}); nothing was spawned, try again",
                    self.url,
                    status.message()
                );
                let fault = Fault::new(Code::Unavailable, Reason::RegistryUnavailable, text)
                    .with("registry_code", status.code() as i32)
                    .retry_after(RETRY_AFTER);
                Unresolved::Away(fault.into())
            }
        }
    }
}

/// A connection that went away under the call: after GOAWAY tonic answers the first call with CANCELLED.
fn lost_in_transport(status: &Status) -> bool {
    let by_transport = std::error::Error::source(status).is_some();
    by_transport && matches!(status.code(), Code::Cancelled | Code::Unavailable | Code::Unknown)
}
