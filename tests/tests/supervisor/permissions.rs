//! Restrictions by a spawn: a child has the tools that its role, its parent and its spawn all allow, and no descendant
//! regains a denied tool.

use tonic::Code;
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{AuthorizeToolRequest, AuthorizeToolResponse, SpawnAgentRequest, ToolCeiling},
};
use troupe_tests::{
    refusal::refused,
    tree::{Spawned, Tree},
    within,
};

use crate::started;

fn lists(allow: &[&str], deny: &[&str]) -> ToolCeiling {
    let owned = |list: &[&str]| list.iter().map(|&pattern| pattern.to_owned()).collect();
    ToolCeiling {
        allow_list: owned(allow),
        deny_list: owned(deny),
    }
}

fn narrowed(request: SpawnAgentRequest, allow: &[&str], deny: &[&str]) -> SpawnAgentRequest {
    SpawnAgentRequest {
        permissions: Some(lists(allow, deny)),
        ..request
    }
}

async fn spawned(tree: &Tree, request: SpawnAgentRequest) -> Spawned {
    Spawned::of(tree.try_spawn(request).await.unwrap())
}

/// What the service says to a tool call of a thread.
async fn decision(tree: &Tree, thread: &str, tool: &str) -> AuthorizeToolResponse {
    let request = AuthorizeToolRequest {
        thread_id: thread.to_owned(),
        tool: tool.to_owned(),
        arguments_json: String::from("{}"),
        ..AuthorizeToolRequest::default()
    };
    let answer = within("a decision", tree.client().authorize_tool(request)).await;
    answer.unwrap().into_inner()
}

/// Those of the tools that a thread may use.
async fn usable<'t>(tree: &Tree, thread: &str, tools: &[&'t str]) -> Vec<&'t str> {
    let mut allowed = Vec::new();
    for &tool in tools {
        if decision(tree, thread, tool).await.allowed {
            allowed.push(tool);
        }
    }
    allowed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descendants_do_not_regain_denied_tools() {
    let (pair, tree) = started().await;
    let tools = ["read_file", "exec_command", "update_plan"];
    let whole = tree.spawn("orchestrator").await;
    let worker = tree.spawn_under(&whole.id, "worker").await;
    assert_eq!(usable(&tree, &worker.id, &tools).await, tools);

    let request = narrowed(tree.request("orchestrator"), &[], &["exec_*", "update_plan"]);
    let lead = spawned(&tree, request).await;
    assert_eq!(usable(&tree, &lead.id, &tools).await, ["read_file"]);
    for by in [&tree, &tree.by(pair.with_token(&lead.token))] {
        let plain = spawned(by, by.request_under(&lead.id, "worker")).await;
        let greedy = narrowed(by.request_under(&lead.id, "worker"), &["*"], &[]);
        let greedy = spawned(by, greedy).await;
        for child in [plain, greedy] {
            assert_eq!(usable(&tree, &child.id, &tools).await, ["read_file"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_without_any_tool_returns_a_warning() {
    let (_pair, tree) = started().await;
    let request = narrowed(tree.request("worker"), &[], &["*"]);
    let answer = tree.try_spawn(request).await.unwrap();
    assert!(
        answer.warnings.iter().any(|warning| warning.contains("grant_list")),
        "{:?}",
        answer.warnings
    );
    let worker = Spawned::of(answer);
    assert!(usable(&tree, &worker.id, tool_policy::CANONICAL_TOOLS).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_permission_patterns_are_rejected() {
    let (_pair, tree) = started().await;
    let head = tree.head().await;
    let long = "x".repeat(257);
    for (pattern, text) in [
        ("", "permissions: deny_list of spawn: a tool pattern is empty"),
        (long.as_str(), "permissions: deny_list of spawn: the tool pattern"),
    ] {
        refused(
            tree.try_spawn(narrowed(tree.request("worker"), &[], &[pattern])).await,
            Code::InvalidArgument,
            Reason::InvalidArgument,
            text,
        );
    }
    assert_eq!(tree.head().await, head);
}
