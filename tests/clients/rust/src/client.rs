//! Connecting, the token of every call, and the usual calls of a client.

use std::error::Error;

use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use crate::{
    environment::Environment,
    registry::v1::{Agent, ListAgentsRequest, agent_registry_service_client::AgentRegistryServiceClient},
    supervisor::v1::{
        CreateSessionRequest, Limits, Session, SpawnAgentRequest,
        agent_supervisor_service_client::AgentSupervisorServiceClient,
    },
};

/// The registry's stub. A clone shares its connection.
pub type Registry = AgentRegistryServiceClient<Connection>;
/// The supervisor's stub. A clone shares its connection.
pub type Supervisor = AgentSupervisorServiceClient<Connection>;
/// A channel whose calls carry the token.
pub type Connection = InterceptedService<Channel, Bearer>;

/// The stubs of both services.
#[derive(Clone)]
pub struct Client {
    /// The registry.
    pub registry: Registry,
    /// The supervisor.
    pub supervisor: Supervisor,
}

impl Client {
    /// Creates a client within a tokio runtime. It connects on first use.
    pub fn new(environment: &Environment) -> Result<Self, Box<dyn Error>> {
        let bearer = Bearer::new(&environment.token)?;
        let registry = plaintext(&environment.registry)?;
        let supervisor = plaintext(&environment.supervisor)?;
        Ok(Self {
            registry: Registry::new(Connection::new(registry, bearer.clone())),
            supervisor: Supervisor::new(Connection::new(supervisor, bearer)),
        })
    }

    /// Lists the agent types of the project in `cwd`, by name and over all pages. Malformed templates are omitted.
    pub async fn agents(&self, cwd: &str) -> Result<Vec<Agent>, Status> {
        let mut registry = self.registry.clone();
        let mut request = ListAgentsRequest {
            cwd: cwd.to_owned(),
            allow_partial: true,
            ..ListAgentsRequest::default()
        };
        let mut agents = Vec::new();
        loop {
            let page = registry.list_agents(request.clone()).await?.into_inner();
            agents.extend(page.agents);
            if page.next_page_token.is_empty() {
                return Ok(agents);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Opens a session with the caller as its root. A caller without a response may repeat the call with the same
    /// `request_id` and receives the same session.
    pub async fn open(&self, request_id: &str, cwd: &str, max_depth: u32) -> Result<Session, Status> {
        let request = CreateSessionRequest {
            request_id: request_id.to_owned(),
            cwd: cwd.to_owned(),
            limits: Some(Limits {
                max_depth: Some(max_depth),
                ..Limits::default()
            }),
            ..CreateSessionRequest::default()
        };
        let answer = self.supervisor.clone().create_session(request).await?.into_inner();
        answer
            .session
            .ok_or_else(|| Status::internal("the response has no session"))
    }

    /// Spawns an agent below the thread `parent` and returns its thread's id.
    pub async fn spawn(&self, session: &str, parent: &str, agent_type: &str, message: &str) -> Result<String, Status> {
        let request = SpawnAgentRequest {
            session_id: session.to_owned(),
            parent_thread_id: parent.to_owned(),
            agent_type: agent_type.to_owned(),
            message: Some(message.to_owned()),
            ..SpawnAgentRequest::default()
        };
        let answer = self.supervisor.clone().spawn_agent(request).await?.into_inner();
        let thread = answer
            .thread
            .ok_or_else(|| Status::internal("the response has no thread"))?;
        Ok(thread.thread_id)
    }
}

/// Adds the token, if any, to the metadata of every call.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    fn new(token: &str) -> Result<Self, Box<dyn Error>> {
        if token.is_empty() {
            return Ok(Self(None));
        }
        Ok(Self(Some(format!("Bearer {token}").parse()?)))
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

/// Returns a channel to `address`, which is host:port. `troupe up` has no TLS. Across machines, enable tonic's TLS.
fn plaintext(address: &str) -> Result<Channel, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?.connect_lazy())
}
