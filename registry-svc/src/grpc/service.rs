//! The methods of AgentRegistryService.

use std::{mem, sync::Arc};

use prost::{Message as _, bytes::Bytes};
use svc_kit::identity::Principal;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use troupe_proto::registry::v1::{
    DescribeSpawnToolRequest, DescribeSpawnToolResponse, GetWorkspaceRequest, GetWorkspaceResponse, ListAgentsRequest,
    ListAgentsResponse, ListDiagnosticsRequest, ListDiagnosticsResponse, PutWorkspaceRequest, PutWorkspaceResponse,
    ResolveSpawnRequest, ResolveSpawnResponse, RouteAgentRequest, RouteAgentResponse, WatchAgentsRequest,
    agent_registry_service_server::AgentRegistryService,
};

use crate::{
    Parts,
    domain::error::RegistryError,
    grpc::{
        agents, bounds,
        call::{self, Call},
        describe, findings, route, spawn,
        status::status,
        watch::{self, AgentStream},
        workspace,
    },
    source::bundle::Workspace,
};

/// The service behind [`crate::RegistryServer`].
#[derive(Clone, Debug)]
pub struct RegistryService {
    parts: Arc<Parts>,
    draining: CancellationToken,
}

impl RegistryService {
    pub(super) const fn new(parts: Arc<Parts>, draining: CancellationToken) -> Self {
        Self { parts, draining }
    }

    /// Returns the encoded ResolveSpawn response, immediately if it is cached.
    pub(super) async fn resolve(&self, mut request: ResolveSpawnRequest) -> Result<Response<Bytes>, Status> {
        let known_etag = mem::take(&mut request.known_etag);
        let answer = match spawn::known(&self.parts, &request) {
            Some(answer) => Response::new(answer),
            None => {
                let workspace = workspace_of(&request.cwd, &request.workspace_digest);
                self.run(workspace, move |call| spawn::resolve(call, request)).await?
            }
        };
        Ok(answer.map(|answer| answer.to(&known_etag)))
    }

    /// Runs a call that reads templates; see [`call::run`].
    async fn run<T: Send + 'static>(
        &self,
        workspace: Option<Workspace>,
        work: impl FnOnce(&Call) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let answer = call::run(&self.parts, workspace.as_ref(), work).await;
        answer.map(Response::new).map_err(status)
    }
}

/// Returns the workspace that a request reads from. `None` if its fields are invalid, which the call itself reports.
fn workspace_of(cwd: &str, digest: &str) -> Option<Workspace> {
    bounds::workspace(cwd.to_owned(), digest.to_owned()).ok()
}

#[tonic::async_trait]
impl AgentRegistryService for RegistryService {
    type WatchAgentsStream = AgentStream;

    async fn list_agents(&self, request: Request<ListAgentsRequest>) -> Result<Response<ListAgentsResponse>, Status> {
        let request = request.into_inner();
        let workspace = workspace_of(&request.cwd, &request.workspace_digest);
        self.run(workspace, move |call| agents::list(call, request)).await
    }

    /// Serves callers in this process. Network calls receive the encoded response; see [`super::server`].
    async fn resolve_spawn(
        &self,
        request: Request<ResolveSpawnRequest>,
    ) -> Result<Response<ResolveSpawnResponse>, Status> {
        let encoded = self.resolve(request.into_inner()).await?.into_inner();
        ResolveSpawnResponse::decode(encoded)
            .map(Response::new)
            .map_err(|error| Status::internal(format!("the registry's response is malformed: {error}")))
    }

    async fn list_diagnostics(
        &self,
        request: Request<ListDiagnosticsRequest>,
    ) -> Result<Response<ListDiagnosticsResponse>, Status> {
        let request = request.into_inner();
        let workspace = workspace_of(&request.cwd, &request.workspace_digest);
        self.run(workspace, move |call| findings::list(call, request)).await
    }

    async fn route_agent(&self, request: Request<RouteAgentRequest>) -> Result<Response<RouteAgentResponse>, Status> {
        let request = request.into_inner();
        let workspace = workspace_of(&request.cwd, &request.workspace_digest);
        self.run(workspace, move |call| route::route(call, request)).await
    }

    async fn put_workspace(
        &self,
        request: Request<PutWorkspaceRequest>,
    ) -> Result<Response<PutWorkspaceResponse>, Status> {
        let caller = request.extensions().get::<Principal>();
        let caller = caller.map(Principal::scope_key).unwrap_or_default();
        let request = request.into_inner();
        self.run(None, move |call| workspace::put(call, caller, request)).await
    }

    async fn get_workspace(
        &self,
        request: Request<GetWorkspaceRequest>,
    ) -> Result<Response<GetWorkspaceResponse>, Status> {
        let request = request.into_inner();
        self.run(None, move |call| workspace::get(call, request)).await
    }

    async fn watch_agents(
        &self,
        request: Request<WatchAgentsRequest>,
    ) -> Result<Response<Self::WatchAgentsStream>, Status> {
        let (parts, draining) = (Arc::clone(&self.parts), self.draining.clone());
        let stream = watch::watch(parts, draining, request.into_inner()).await;
        stream.map(Response::new).map_err(status)
    }

    async fn describe_spawn_tool(
        &self,
        request: Request<DescribeSpawnToolRequest>,
    ) -> Result<Response<DescribeSpawnToolResponse>, Status> {
        let request = request.into_inner();
        let workspace = workspace_of(&request.cwd, &request.workspace_digest);
        self.run(workspace, move |call| describe::describe(call, request)).await
    }
}
