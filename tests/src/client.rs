//! Clients of both services. They connect on first use.

use std::net::SocketAddr;

use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};
use troupe_proto::{
    registry::v1::agent_registry_service_client::AgentRegistryServiceClient,
    supervisor::v1::{
        agent_supervisor_service_client::AgentSupervisorServiceClient,
        thread_runner_service_client::ThreadRunnerServiceClient,
    },
};

/// Flow control window of a client that reads slowly, in bytes.
const NARROW: u32 = 65_535;
/// Flow control window of a client that never reads, in bytes.
const ZERO: u32 = 0;

type Identified = InterceptedService<Channel, Bearer>;
/// A client of the agent service.
pub type Supervisor = AgentSupervisorServiceClient<Identified>;
/// A client of the runner service.
pub type Runners = ThreadRunnerServiceClient<Identified>;
/// A client of the registry.
pub type Registry = AgentRegistryServiceClient<Identified>;

/// Adds the token, if any, to the metadata of every call.
#[derive(Clone, Debug)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// Creates an interceptor for a token.
    #[must_use]
    pub fn new(token: Option<&str>) -> Self {
        Self(token.map(|token| format!("Bearer {token}").parse().unwrap()))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// Returns a client of the supervisor at an address.
#[must_use]
pub fn supervisor(at: SocketAddr, token: Option<&str>) -> Supervisor {
    supervisor_over(endpoint(at).connect_lazy(), token)
}

/// Returns a client of the supervisor over a channel.
#[must_use]
pub fn supervisor_over(channel: Channel, token: Option<&str>) -> Supervisor {
    AgentSupervisorServiceClient::with_interceptor(channel, Bearer::new(token))
}

/// Returns a client of the supervisor with a small window: the server soon blocks on a stream that is not read.
#[must_use]
pub fn narrow_supervisor(at: SocketAddr, token: Option<&str>) -> Supervisor {
    let channel = endpoint(at)
        .initial_stream_window_size(NARROW)
        .initial_connection_window_size(NARROW)
        .connect_lazy();
    supervisor_over(channel, token)
}

/// Returns a client of the supervisor whose streams have no space for any message.
#[must_use]
pub fn deaf_supervisor(at: SocketAddr, token: Option<&str>) -> Supervisor {
    let channel = endpoint(at).initial_stream_window_size(ZERO).connect_lazy();
    supervisor_over(channel, token)
}

/// Returns a client of the runner service at an address.
#[must_use]
pub fn runners(at: SocketAddr, token: Option<&str>) -> Runners {
    runners_over(endpoint(at).connect_lazy(), token)
}

/// Returns a client of the runner service over a channel.
#[must_use]
pub fn runners_over(channel: Channel, token: Option<&str>) -> Runners {
    ThreadRunnerServiceClient::with_interceptor(channel, Bearer::new(token))
}

/// Returns a client of the registry at an address.
#[must_use]
pub fn registry(at: SocketAddr, token: Option<&str>) -> Registry {
    AgentRegistryServiceClient::with_interceptor(endpoint(at).connect_lazy(), Bearer::new(token))
}

/// Returns a channel without TLS.
#[must_use]
pub fn endpoint(at: SocketAddr) -> Endpoint {
    Endpoint::from_shared(format!("http://{at}")).unwrap()
}
