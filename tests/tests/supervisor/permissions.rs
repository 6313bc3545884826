//! Restrictions by a spawn: a child has the tools that its role, its parent and its spawn all allow, and no descendant
//! regains a denied tool.

use tonic::Code;
use troupe_proto::{
    common::v1::{Sandbox, ToolPolicyLayer},
    reason::Reason,
    supervisor::v1::{
        AuthorizeToolRequest, AuthorizeToolResponse, CreateSessionRequest, DescribeToolsRequest, ResumeAgentRequest,
        SpawnAgentRequest, ToolCeiling,
    },
};
use troupe_tests::{
    pair::Pair,
    refusal::refused,
    runner::Runner,
    tree::{Spawned, Tree},
    within,
};

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

/// A role of the project that leads, and whose children may hold more tools than it has itself.
fn write_lead(pair: &Pair) {
    pair.write_role(
        "lead",
        "---\ndescription: Leads.\nallow_list:\n  - spawn_agent\n  - wait\ngrant_list:\n  - exec_command\n  \
         - read_file\n---\nYou lead.\n",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_tools_are_role_parent_and_spawn_intersection() {
    let pair = Pair::start().await;
    let tree = pair
        .tree_with(CreateSessionRequest {
            tool_ceiling: Some(lists(&[], &["web_search"])),
            ..CreateSessionRequest::default()
        })
        .await;
    let mut runner = Runner::attach(&pair, "r").await;
    let allow = ["read_*", "list_files", "exec_*", "web_search", "create_edge"];
    let request = narrowed(tree.request("worker"), &allow, &["exec_command"]);
    let worker = spawned(&tree, request).await;

    let asked = [
        "read_file",
        "list_files",
        "exec_command", // Its spawn denies what it allows as well.
        "web_search",   // The session does not allow it.
        "create_edge",  // The role does not.
        "apply_patch",  // The spawn does not.
    ];
    assert_eq!(usable(&tree, &worker.id, &asked).await, ["read_file", "list_files"]);
    let denied = decision(&tree, &worker.id, "exec_command").await;
    assert!(denied.reason.starts_with("denied by spawn: "), "{denied:?}");

    // Every reader receives the layers, and so does the runner.
    let layers = worker.thread.tool_policy.clone().unwrap().layers;
    let spawn: Vec<&ToolPolicyLayer> = layers.iter().filter(|layer| layer.origin == "spawn").collect();
    assert_eq!(spawn.len(), 1, "{layers:?}");
    assert_eq!(spawn[0].allow_list, allow);
    assert_eq!(spawn[0].deny_list, ["exec_command"]);
    assert_eq!(tree.thread(&worker.id).await.tool_policy, worker.thread.tool_policy);
    let start = runner.start_of(&worker.id).await;
    assert_eq!(start.tool_policy, worker.thread.tool_policy);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permissions_that_ask_for_more_give_nothing() {
    let pair = Pair::start().await;
    pair.write_role(
        "reader",
        "---\ndescription: Reads.\nread_only: true\nallow_list:\n  - spawn_agent\n  - read_file\n---\nYou read.\n",
    );
    let tree = pair.tree().await;
    let reader = tree.spawn("reader").await;
    let plain = tree.spawn_under(&reader.id, "worker").await;
    // By its operator, who may spawn any role, and by the parent itself.
    for by in [&tree, &tree.by(pair.with_token(&reader.token))] {
        let request = narrowed(by.request_under(&reader.id, "worker"), &["*", "web_search"], &[]);
        let greedy = spawned(by, request).await;
        let tools = tool_policy::CANONICAL_TOOLS;
        assert_eq!(
            usable(&tree, &greedy.id, tools).await,
            usable(&tree, &plain.id, tools).await
        );
        assert_eq!(
            usable(&tree, &greedy.id, &["read_file", "web_search"]).await,
            ["read_file"]
        );
        assert_eq!(greedy.thread.sandbox(), Sandbox::ReadOnly);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descendants_do_not_regain_denied_tools() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
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
async fn a_grant_list_gives_nothing_back_that_a_spawn_took_away() {
    let pair = Pair::start().await;
    write_lead(&pair);
    let tree = pair.tree().await;
    let tools = ["read_file", "exec_command"];
    let whole = tree.spawn("lead").await;
    assert!(usable(&tree, &whole.id, &tools).await.is_empty(), "it only leads");
    let worker = tree.spawn_under(&whole.id, "worker").await;
    assert_eq!(usable(&tree, &worker.id, &tools).await, tools, "its children work");

    // Only a deny list: an allow list that leaves out what the children need takes that from them as well.
    let lead = spawned(&tree, narrowed(tree.request("lead"), &[], &["exec_command"])).await;
    let worker = spawned(
        &tree.by(pair.with_token(&lead.token)),
        tree.request_under(&lead.id, "worker"),
    )
    .await;
    assert_eq!(usable(&tree, &worker.id, &tools).await, ["read_file"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_whose_spawn_denies_spawning_has_no_children() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let request = narrowed(tree.request("orchestrator"), &[], &["spawn_*"]);
    let lead = spawned(&tree, request).await;
    let by_itself = tree.by(pair.with_token(&lead.token));
    let status = refused(
        by_itself.try_spawn(tree.request_under(&lead.id, "worker")).await,
        Code::PermissionDenied,
        Reason::ToolDenied,
        "",
    );
    assert_eq!(
        status.message(),
        "tool \"spawn_agent\" is not allowed for agent_type \"orchestrator\""
    );
    let request = DescribeToolsRequest {
        thread_id: lead.id.clone(),
        ..DescribeToolsRequest::default()
    };
    let offered = tree.client().describe_tools(request).await.unwrap().into_inner().tools;
    let names: Vec<&str> = offered.iter().map(|tool| tool.name.as_str()).collect();
    assert!(names.contains(&"wait"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("spawn_")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_is_left_without_tools_is_a_warning() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
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
    let pair = Pair::start().await;
    let tree = pair.tree().await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restrictions_survive_restart_and_resume() {
    let mut pair = Pair::start().await;
    let tree = pair.tree().await;
    let tools = ["read_file", "exec_command"];
    let worker = spawned(&tree, narrowed(tree.request("worker"), &[], &["exec_command"]))
        .await
        .id;
    tree.close(&worker).await;
    pair.restart().await;
    let tree = tree.by(pair.operator());
    let request = ResumeAgentRequest {
        thread_id: worker.clone(),
        ..ResumeAgentRequest::default()
    };
    within("a thread", tree.client().resume_agent(request)).await.unwrap();
    assert_eq!(usable(&tree, &worker, &tools).await, ["read_file"]);
}
