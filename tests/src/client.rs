//! Clients of both services. They connect when they are first used.

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

/// The flow control window of a client that reads slowly, in bytes.
const NARROW: u32 = 65_535;
/// That of a client which never reads.
const NO_ROOM: u32 = 0;

type Identified = InterceptedService<Channel, Bearer>;
/// The supervisor, as its clients call it.
pub type Supervisor = AgentSupervisorServiceClient<Identified>;
/// The supervisor, as runners call it.
pub type Runners = ThreadRunnerServiceClient<Identified>;
/// The registry.
pub type Registry = AgentRegistryServiceClient<Identified>;

/// Puts a token, if there is one, into the metadata of every call.
#[derive(Clone, Debug)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// The bearer of that token.
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

/// A client of the supervisor at that address.
#[must_use]
pub fn supervisor(at: SocketAddr, token: Option<&str>) -> Supervisor {
    supervisor_over(endpoint(at).connect_lazy(), token)
}

/// A client of the supervisor over that channel.
#[must_use]
pub fn supervisor_over(channel: Channel, token: Option<&str>) -> Supervisor {
    AgentSupervisorServiceClient::with_interceptor(channel, Bearer::new(token))
}

/// The same, with so small a window that whoever does not read is soon sent nothing more.
#[must_use]
pub fn narrow_supervisor(at: SocketAddr, token: Option<&str>) -> Supervisor {
    let channel = endpoint(at)
        .initial_stream_window_size(NARROW)
        .initial_connection_window_size(NARROW)
        .connect_lazy();
    supervisor_over(channel, token)
}

/// The same, with streams that have no room for any message.
#[must_use]
pub fn deaf_supervisor(at: SocketAddr, token: Option<&str>) -> Supervisor {
    let channel = endpoint(at).initial_stream_window_size(NO_ROOM).connect_lazy();
    supervisor_over(channel, token)
}

/// The runners' side of the supervisor at that address.
#[must_use]
pub fn runners(at: SocketAddr, token: Option<&str>) -> Runners {
    runners_over(endpoint(at).connect_lazy(), token)
}

/// The runners' side of the supervisor over that channel.
#[must_use]
pub fn runners_over(channel: Channel, token: Option<&str>) -> Runners {
    ThreadRunnerServiceClient::with_interceptor(channel, Bearer::new(token))
}

/// A client of the registry at that address.
#[must_use]
pub fn registry(at: SocketAddr, token: Option<&str>) -> Registry {
    AgentRegistryServiceClient::with_interceptor(endpoint(at).connect_lazy(), Bearer::new(token))
}

/// Where a plain connection leads.
#[must_use]
pub fn endpoint(at: SocketAddr) -> Endpoint {
    Endpoint::from_shared(format!("http://{at}")).unwrap()
}
