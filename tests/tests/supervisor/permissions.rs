//! Restrictions in a spawn request: a child has only the tools that its role, its parent and its spawn request all
//! allow, and no descendant regains a denied tool.

use troupe_proto::supervisor::v1::{SpawnAgentRequest, ToolCeiling};
use troupe_tests::{
    refusal::invalid,
    tree::{Spawned, Tree},
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

/// Returns the given tools that a thread may use.
async fn usable<'t>(tree: &Tree, thread: &str, tools: &[&'t str]) -> Vec<&'t str> {
    let mut allowed = Vec::new();
    for &tool in tools {
        if tree.may_use(thread, tool).await {
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
    let lead = tree.spawn_with(request).await;
    assert_eq!(usable(&tree, &lead.id, &tools).await, ["read_file"]);
    for by in [&tree, &tree.by(pair.with_token(&lead.token))] {
        let plain = by.spawn_with(by.request_under(&lead.id, "worker")).await;
        let greedy = narrowed(by.request_under(&lead.id, "worker"), &["*"], &[]);
        let greedy = by.spawn_with(greedy).await;
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
        let answer = tree.try_spawn(narrowed(tree.request("worker"), &[], &[pattern])).await;
        invalid(answer, text);
    }
    assert_eq!(tree.head().await, head);
}
