//! Uploaded templates: if the registry accepts a workspace with arbitrary files, each call about it gets a response or
//! an error. An input is a list of length-prefixed files: a line with the path, followed by the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::bytes::Bytes;
use tonic::Status;
use troupe_fuzz::{calls, frames::frames, registry};
use troupe_proto::{
    common::v1::Scope,
    registry::v1::{
        DescribeSpawnToolRequest, ListAgentsRequest, ListDiagnosticsRequest, PutWorkspaceRequest, ResolveSpawnRequest,
        WorkspaceFile, agent_registry_service_client::AgentRegistryServiceClient,
    },
};

fn file(frame: &[u8]) -> Option<WorkspaceFile> {
    let end = frame.iter().position(|byte| *byte == b'\n')?;
    Some(WorkspaceFile {
        scope: Scope::Project.into(),
        path: str::from_utf8(&frame[..end]).ok()?.to_owned(),
        content: Bytes::copy_from_slice(&frame[end + 1..]),
    })
}

/// Uploads the files and makes calls about them, up to the first error.
async fn call_about(files: Vec<WorkspaceFile>) -> Result<(), Status> {
    let mut client = AgentRegistryServiceClient::new(registry::server());
    let upload = PutWorkspaceRequest {
        files,
        ..PutWorkspaceRequest::default()
    };
    let workspace_digest = client.put_workspace(upload).await?.into_inner().workspace_digest;

    let found = ListDiagnosticsRequest {
        workspace_digest: workspace_digest.clone(),
        ..ListDiagnosticsRequest::default()
    };
    client.list_diagnostics(found).await?;
    let described = DescribeSpawnToolRequest {
        workspace_digest: workspace_digest.clone(),
        ..DescribeSpawnToolRequest::default()
    };
    client.describe_spawn_tool(described).await?;
    let listed = ListAgentsRequest {
        workspace_digest: workspace_digest.clone(),
        allow_partial: true,
        expanded: true,
        ..ListAgentsRequest::default()
    };
    for agent in client.list_agents(listed).await?.into_inner().agents {
        let resolved = ResolveSpawnRequest {
            workspace_digest: workspace_digest.clone(),
            agent_type: Some(agent.agent_type),
            ..ResolveSpawnRequest::default()
        };
        calls::check(client.resolve_spawn(resolved).await.map(drop));
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let files = frames(bytes).filter_map(file).collect();
    calls::check(calls::run(call_about(files)));
});
