//! Templates as strangers upload them: whatever files a workspace has, if it is taken, everything that the registry says
//! of it is an answer or a refusal. An input is several files, each after its length: a line with the path, and the text.
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

/// Uploads the files and asks about them, up to the first refusal.
async fn ask(files: Vec<WorkspaceFile>) -> Result<(), Status> {
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
    calls::check(calls::run(ask(files)));
});
