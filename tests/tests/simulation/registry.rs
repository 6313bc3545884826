//! A registry that knows every role and restricts none.

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, transport::Server};
use troupe_proto::{
    common::v1::{ResolvedSpawn, Sandbox},
    registry::v1::{
        DescribeSpawnToolRequest, DescribeSpawnToolResponse, GetWorkspaceRequest, GetWorkspaceResponse,
        ListAgentsRequest, ListAgentsResponse, ListDiagnosticsRequest, ListDiagnosticsResponse, PutWorkspaceRequest,
        PutWorkspaceResponse, ResolveSpawnRequest, ResolveSpawnResponse, RouteAgentRequest, RouteAgentResponse,
        WatchAgentsRequest, WatchAgentsResponse,
        agent_registry_service_server::{AgentRegistryService, AgentRegistryServiceServer},
    },
};

use crate::net;

/// Serves until the simulation ends.
pub async fn run() -> turmoil::Result {
    let incoming = net::accept().await?;
    Server::builder()
        .http2_keepalive_interval(Some(net::KEEPALIVE))
        .http2_keepalive_timeout(Some(net::KEEPALIVE))
        .add_service(AgentRegistryServiceServer::new(Registry))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

struct Registry;

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl AgentRegistryService for Registry {
    type WatchAgentsStream = ReceiverStream<Result<WatchAgentsResponse, Status>>;

    async fn resolve_spawn(&self, request: Request<ResolveSpawnRequest>) -> Answer<ResolveSpawnResponse> {
        let agent_type = request
            .into_inner()
            .agent_type
            .unwrap_or_else(|| String::from("default"));
        Ok(Response::new(ResolveSpawnResponse {
            resolved: Some(ResolvedSpawn {
                agent_description: format!("does what a {agent_type} does"),
                agent_type,
                sandbox: Sandbox::WorkspaceWrite.into(),
                ..ResolvedSpawn::default()
            }),
            ..ResolveSpawnResponse::default()
        }))
    }

    async fn list_agents(&self, _: Request<ListAgentsRequest>) -> Answer<ListAgentsResponse> {
        unused()
    }

    async fn route_agent(&self, _: Request<RouteAgentRequest>) -> Answer<RouteAgentResponse> {
        unused()
    }

    async fn put_workspace(&self, _: Request<PutWorkspaceRequest>) -> Answer<PutWorkspaceResponse> {
        unused()
    }

    async fn get_workspace(&self, _: Request<GetWorkspaceRequest>) -> Answer<GetWorkspaceResponse> {
        unused()
    }

    async fn list_diagnostics(&self, _: Request<ListDiagnosticsRequest>) -> Answer<ListDiagnosticsResponse> {
        unused()
    }

    async fn watch_agents(&self, _: Request<WatchAgentsRequest>) -> Answer<Self::WatchAgentsStream> {
        unused()
    }

    async fn describe_spawn_tool(&self, _: Request<DescribeSpawnToolRequest>) -> Answer<DescribeSpawnToolResponse> {
        unused()
    }
}

fn unused<T>() -> Answer<T> {
    Err(Status::unimplemented("no simulation calls this method"))
}
