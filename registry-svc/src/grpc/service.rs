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
        agents, describe, findings, route, spawn,
        status::status,
        watch::{self, AgentStream},
        workspace,
    },
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

    /// Answers ResolveSpawn, encoded: at once if the answer is known.
    pub(super) async fn resolve(&self, mut request: ResolveSpawnRequest) -> Result<Response<Bytes>, Status> {
        let known_etag = mem::take(&mut request.known_etag);
        let answer = match spawn::known(&self.parts, &request) {
            Some(answer) => Response::new(answer),
            None => self.blocking(move |parts| spawn::resolve(parts, request)).await?,
        };
        Ok(answer.map(|answer| answer.to(&known_etag)))
    }

    /// Runs a call on a blocking thread: it may have to look at the disk, and a slow disk (a network mount) must stall
    /// its own callers only.
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

#[tonic::async_trait]
impl AgentRegistryService for RegistryService {
    type WatchAgentsStream = AgentStream;

    async fn list_agents(&self, request: Request<ListAgentsRequest>) -> Result<Response<ListAgentsResponse>, Status> {
        let request = request.into_inner();
        self.blocking(move |parts| agents::list(parts, request)).await
    }

    /// For callers in this process; over the network the answer goes out as it is, see [`spawn::ResolveMethod`].
    async fn resolve_spawn(
        &self,
        request: Request<ResolveSpawnRequest>,
    ) -> Result<Response<ResolveSpawnResponse>, Status> {
        let encoded = self.resolve(request.into_inner()).await?.into_inner();
        ResolveSpawnResponse::decode(encoded)
            .map(Response::new)
            .map_err(|error| Status::internal(format!("an answer of the registry is malformed: {error}")))
    }

    async fn list_diagnostics(
        &self,
        request: Request<ListDiagnosticsRequest>,
    ) -> Result<Response<ListDiagnosticsResponse>, Status> {
        let request = request.into_inner();
        self.blocking(move |parts| findings::list(parts, request)).await
    }

    async fn route_agent(&self, request: Request<RouteAgentRequest>) -> Result<Response<RouteAgentResponse>, Status> {
        let request = request.into_inner();
        self.blocking(move |parts| route::route(parts, request)).await
    }

    async fn put_workspace(
        &self,
        request: Request<PutWorkspaceRequest>,
    ) -> Result<Response<PutWorkspaceResponse>, Status> {
        let caller = request.extensions().get::<Principal>();
        let caller = caller.map(Principal::scope_key).unwrap_or_default();
        let request = request.into_inner();
        self.blocking(move |parts| workspace::put(parts, caller, request)).await
    }

    async fn get_workspace(
        &self,
        request: Request<GetWorkspaceRequest>,
    ) -> Result<Response<GetWorkspaceResponse>, Status> {
        let request = request.into_inner();
        self.blocking(move |parts| workspace::get(parts, request)).await
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
        self.blocking(move |parts| describe::describe(parts, request)).await
    }
}
