//! The methods of AgentRegistryService.

use std::sync::Arc;

use tonic::{Request, Response, Status, codegen::BoxStream};
use troupe_proto::registry::v1::{
    DescribeSpawnToolRequest, DescribeSpawnToolResponse, ListAgentsRequest, ListAgentsResponse, ListDiagnosticsRequest,
    ListDiagnosticsResponse, PutWorkspaceRequest, PutWorkspaceResponse, ResolveSpawnRequest, ResolveSpawnResponse,
    RouteAgentRequest, RouteAgentResponse, WatchAgentsRequest, WatchAgentsResponse,
    agent_registry_service_server::AgentRegistryService,
};

use crate::{
    Parts,
    domain::error::RegistryError,
    grpc::{agents, findings, spawn, status::status},
};

/// The service. Made by [`crate::Registry::service`].
#[derive(Clone, Debug)]
pub struct RegistryService {
    parts: Arc<Parts>,
}

impl RegistryService {
    pub(crate) const fn new(parts: Arc<Parts>) -> Self {
        Self { parts }
    }

    /// Runs a call on a blocking thread, always: even a warm one asks the disk for the state of its files, and a slow
    /// disk (a network mount) must stall its own callers only.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Parts) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let parts = Arc::clone(&self.parts);
        match tokio::task::spawn_blocking(move || work(&parts)).await {
            Ok(Ok(answer)) => Ok(Response::new(answer)),
            Ok(Err(error)) => Err(status(error)),
            Err(failure) => {
                tracing::error!(%failure, "a call of the registry panicked");
                Err(status(RegistryError::Internal))
            }
        }
    }
}

fn not_built<T>(method: &'static str, instead: &'static str) -> Result<T, Status> {
    Err(status(RegistryError::NotBuilt { method, instead }))
}

#[tonic::async_trait]
impl AgentRegistryService for RegistryService {
    type WatchAgentsStream = BoxStream<WatchAgentsResponse>;

    async fn list_agents(&self, request: Request<ListAgentsRequest>) -> Result<Response<ListAgentsResponse>, Status> {
        let request = request.into_inner();
        self.blocking(move |parts| agents::list(parts, request)).await
    }

    async fn resolve_spawn(
        &self,
        request: Request<ResolveSpawnRequest>,
    ) -> Result<Response<ResolveSpawnResponse>, Status> {
        let request = request.into_inner();
        self.blocking(move |parts| spawn::resolve(parts, request)).await
    }

    async fn list_diagnostics(
        &self,
        request: Request<ListDiagnosticsRequest>,
    ) -> Result<Response<ListDiagnosticsResponse>, Status> {
        let request = request.into_inner();
        self.blocking(move |parts| findings::list(parts, request)).await
    }

    async fn route_agent(&self, _: Request<RouteAgentRequest>) -> Result<Response<RouteAgentResponse>, Status> {
        not_built("RouteAgent", "choose an agent_type from ListAgents")
    }

    async fn put_workspace(&self, _: Request<PutWorkspaceRequest>) -> Result<Response<PutWorkspaceResponse>, Status> {
        not_built(
            "PutWorkspace",
            "run the registry where the project's files are and give cwd",
        )
    }

    async fn watch_agents(&self, _: Request<WatchAgentsRequest>) -> Result<Response<Self::WatchAgentsStream>, Status> {
        not_built("WatchAgents", "call ListAgents again and compare its revision")
    }

    async fn describe_spawn_tool(
        &self,
        _: Request<DescribeSpawnToolRequest>,
    ) -> Result<Response<DescribeSpawnToolResponse>, Status> {
        not_built(
            "DescribeSpawnTool",
            "describe the tool from ListAgents with allow_partial",
        )
    }
}
