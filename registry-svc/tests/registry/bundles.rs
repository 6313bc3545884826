//! Tests of PutWorkspace and GetWorkspace on a TCP port, and of the calls that read from a bundle instead of the disk.

use registry_svc::BundleBounds;
use tonic::{Code, Status};
use troupe_proto::{
    MAX_WORKSPACE_MESSAGE_BYTES,
    common::v1::Scope,
    reason::Reason,
    registry::v1::{
        DescribeSpawnToolRequest, GetWorkspaceRequest, ListAgentsRequest, ListDiagnosticsRequest, PutWorkspaceRequest,
        ResolveSpawnRequest, RouteAgentRequest, WatchAgentsRequest, WorkspaceFile,
    },
};

use crate::site::{Site, assert_fault};

fn file(scope: Scope, path: &str, text: &str) -> WorkspaceFile {
    WorkspaceFile {
        scope: scope.into(),
        path: path.to_owned(),
        content: text.as_bytes().to_vec().into(),
    }
}

fn role(name: &str, prompt: &str) -> WorkspaceFile {
    let text = format!("---\ndescription: d\nkeywords: [{name}word]\n---\n{prompt}\n");
    file(Scope::Project, &format!(".codex/.agents/{name}.md"), &text)
}

async fn put(site: &Site, files: Vec<WorkspaceFile>) -> Result<String, Status> {
    let request = PutWorkspaceRequest {
        files,
        request_id: String::new(),
    };
    let answer = site.client().put_workspace(request).await?;
    Ok(answer.into_inner().workspace_digest)
}

async fn get(site: &Site, digest: &str) -> Result<Vec<WorkspaceFile>, Status> {
    let request = GetWorkspaceRequest {
        workspace_digest: digest.to_owned(),
    };
    let mut client = site.client().max_decoding_message_size(MAX_WORKSPACE_MESSAGE_BYTES);
    Ok(client.get_workspace(request).await?.into_inner().files)
}

/// Returns a spawn that reads from a bundle. Its directory exists only on the runner's machine.
fn spawn(digest: &str, agent_type: &str) -> ResolveSpawnRequest {
    ResolveSpawnRequest {
        cwd: "/on/another/machine".to_owned(),
        workspace_digest: digest.to_owned(),
        agent_type: Some(agent_type.to_owned()),
        ..ResolveSpawnRequest::default()
    }
}

fn listed(digest: &str) -> ListAgentsRequest {
    ListAgentsRequest {
        workspace_digest: digest.to_owned(),
        ..ListAgentsRequest::default()
    }
}

#[tokio::test]
async fn every_read_accepts_a_bundle() {
    let site = Site::with(|config| config.auto_route = true).await;
    // Must not be listed: with a bundle, the user scope also comes from the bundle.
    site.write("home/.codex/.agents/local.md", "---\ndescription: d\n---\nx");
    let files = vec![
        role("clerk", "root"),
        file(
            Scope::Project,
            "a/.codex/.agents/clerk.md",
            "---\ndescription: d\n---\nnear",
        ),
        file(Scope::User, ".codex/.agents/mine.md", "---\ndescription: d\n---\nmine"),
        file(Scope::User, ".codex/collab/codex_system_footer.md", "Uploaded footer."),
        file(
            Scope::Project,
            ".codex/.agents/broken.md",
            "---\nread_only: yes\n---\nx",
        ),
    ];
    let digest = put(&site, files).await.unwrap();
    assert_eq!(digest.len(), 64);

    let resolved = site.resolve(spawn(&digest, "clerk")).await.unwrap();
    assert_eq!(resolved.instructions, "near");
    assert!(resolved.blocks[0].text.ends_with("\n\nUploaded footer."));
    let source = resolved.source.unwrap();
    assert_eq!(
        (source.scope(), source.path.as_str()),
        (Scope::Project, "project:a/.codex/.agents/clerk.md")
    );
    assert_eq!(source.shadowed, ["project:.codex/.agents/clerk.md"]);

    let partial = ListAgentsRequest {
        allow_partial: true,
        ..listed(&digest)
    };
    let answer = site.list(partial).await.unwrap();
    let names: Vec<_> = answer.agents.iter().map(|agent| agent.agent_type.as_str()).collect();
    assert!(
        names.contains(&"clerk") && names.contains(&"mine") && names.contains(&"worker"),
        "{names:?}"
    );
    assert!(!names.contains(&"local") && !names.contains(&"broken"), "{names:?}");

    let found = site
        .client()
        .list_diagnostics(ListDiagnosticsRequest {
            workspace_digest: digest.clone(),
            ..ListDiagnosticsRequest::default()
        })
        .await
        .unwrap()
        .into_inner()
        .diagnostics;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].path, "project:.codex/.agents/broken.md");

    let routed = site
        .client()
        .route_agent(RouteAgentRequest {
            workspace_digest: digest.clone(),
            text: "ask mine".to_owned(),
            ..RouteAgentRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(routed.agent_type, "mine");

    let described = site
        .client()
        .describe_spawn_tool(DescribeSpawnToolRequest {
            workspace_digest: digest.clone(),
            ..DescribeSpawnToolRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    assert!(described.hint.contains("; clerk: d; "), "{}", described.hint);

    let mut watched = site
        .client()
        .watch_agents(WatchAgentsRequest {
            workspace_digest: digest,
            ..WatchAgentsRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    let first = watched.message().await.unwrap().unwrap();
    assert_eq!(first.revision, answer.revision);
}

#[tokio::test]
async fn request_id_belongs_to_one_bundle() {
    let site = Site::new().await;
    let upload = async |name: &str| {
        let request = PutWorkspaceRequest {
            files: vec![role(name, "x")],
            request_id: "once".to_owned(),
        };
        site.client().put_workspace(request).await
    };
    let first = upload("a").await.unwrap().into_inner();
    assert_eq!(upload("a").await.unwrap().into_inner(), first);
    assert_fault(
        &upload("b").await.unwrap_err(),
        Code::AlreadyExists,
        Reason::RequestIdReused,
        "request_id \"once\" was already used",
    );
}

#[tokio::test]
async fn unknown_bundle_fails_every_read() {
    let site = Site::with(|config| {
        config.bundles = BundleBounds {
            count: 1,
            ..BundleBounds::default()
        };
    })
    .await;
    let gone = put(&site, vec![role("a", "x")]).await.unwrap();
    put(&site, vec![role("b", "x")]).await.unwrap();
    let mut client = site.client();
    for digest in ["abc", "0".repeat(64).as_str(), gone.as_str()] {
        let workspace_digest = digest.to_owned();
        let errors = [
            site.resolve(spawn(digest, "a")).await.unwrap_err(),
            site.list(listed(digest)).await.unwrap_err(),
            get(&site, digest).await.unwrap_err(),
            client
                .list_diagnostics(ListDiagnosticsRequest {
                    workspace_digest: workspace_digest.clone(),
                    ..ListDiagnosticsRequest::default()
                })
                .await
                .unwrap_err(),
            client
                .route_agent(RouteAgentRequest {
                    workspace_digest: workspace_digest.clone(),
                    ..RouteAgentRequest::default()
                })
                .await
                .unwrap_err(),
            client
                .describe_spawn_tool(DescribeSpawnToolRequest {
                    workspace_digest: workspace_digest.clone(),
                    ..DescribeSpawnToolRequest::default()
                })
                .await
                .unwrap_err(),
            client
                .watch_agents(WatchAgentsRequest {
                    workspace_digest,
                    ..WatchAgentsRequest::default()
                })
                .await
                .unwrap_err(),
        ];
        for error in errors {
            let text = format!("workspace {digest:?} is not known here; upload it with PutWorkspace");
            assert_fault(&error, Code::FailedPrecondition, Reason::WorkspaceUnknown, &text);
        }
    }
    assert_eq!(put(&site, vec![role("a", "x")]).await.unwrap(), gone);
    assert!(site.resolve(spawn(&gone, "a")).await.is_ok());
}

#[tokio::test]
async fn uploaded_bundle_can_be_read_back() {
    let site = Site::new().await;
    let (user, near) = (
        file(Scope::User, ".codex/.agents/mine.md", "mine"),
        file(Scope::Project, "a/.codex/.agents/near.md", "\u{feff}near\r\n"),
    );
    let digest = put(&site, vec![user.clone(), near.clone(), role("clerk", "x")])
        .await
        .unwrap();
    let files = get(&site, &digest).await.unwrap();
    assert_eq!(files, [role("clerk", "x"), near, user]);
    assert_eq!(put(&Site::new().await, files).await.unwrap(), digest);
}

#[tokio::test]
async fn upload_limits_and_paths_are_checked() {
    let site = Site::new().await;
    let one = |scope, path| vec![file(scope, path, "x")];
    // Each file is within the limit, but their total size is not.
    let text = "x".repeat(1_000_000);
    let heavy = (0..17).map(|number| role(&format!("r{number}"), &text)).collect();
    let many = (0..2_001).map(|number| role(&format!("r{number}"), "x")).collect();
    for (files, text) in [
        (one(Scope::System, ".codex/.agents/a.md"), "scope 3 cannot be uploaded"),
        (
            one(Scope::Unspecified, ".codex/.agents/a.md"),
            "scope 0 cannot be uploaded",
        ),
        (
            one(Scope::User, ".ssh/id_ed25519"),
            "path \".ssh/id_ed25519\" is not the path of a template",
        ),
        (heavy, "the files of the bundle have 17000"),
        (many, "the bundle has 2001 files; at most 2000 are allowed"),
    ] {
        let error = put(&site, files).await.unwrap_err();
        assert_fault(&error, Code::InvalidArgument, Reason::InvalidArgument, text);
    }
    // An oversized bundle is rejected before it is checked. The transport may also abort the call.
    let error = put(&site, vec![role("a", &"x".repeat(40 * 1024 * 1024))])
        .await
        .unwrap_err();
    assert_ne!(error.code(), Code::InvalidArgument, "{error}");
    // Every other method keeps the smaller limit.
    let long = ResolveSpawnRequest {
        model: "m".repeat(5 * 1024 * 1024),
        ..ResolveSpawnRequest::default()
    };
    let error = site.resolve(long).await.unwrap_err();
    assert_ne!(error.code(), Code::InvalidArgument, "{error}");
}

#[tokio::test]
async fn largest_bundle_is_accepted() {
    let site = Site::new().await;
    let text = "x".repeat(1_000_000);
    let files = (0..16).map(|number| role(&format!("r{number}"), &text)).collect();
    let digest = put(&site, files).await.unwrap();
    let resolved = site.resolve(spawn(&digest, "r7")).await.unwrap();
    assert_eq!(resolved.instructions.len(), text.len());
    let files = get(&site, &digest).await.unwrap();
    assert_eq!(files.len(), 16);
    assert_eq!(put(&site, files).await.unwrap(), digest);
}
