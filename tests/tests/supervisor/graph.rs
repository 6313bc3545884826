//! Edges and handoffs for clients and agents: the handoffs that an edge permits, the rejected handoffs, and the tools
//! that a thread is offered.

use std::fs;

use tonic::Status;
use troupe_proto::{
    common::v1::{Dialect, EdgeManagement},
    supervisor::v1::{
        ArtifactRef, CreateEdgeRequest, DeleteEdgeRequest, Edge, Handoff, ListEdgesRequest, ResponseExpectation,
        SendHandoffRequest, SpawnAgentRequest, Thread, ToolCeiling,
    },
};
use troupe_tests::{
    UNKNOWN,
    client::Supervisor,
    pair::Pair,
    refusal::{illegal_transition, outside_subtree},
    runner::{Runner, task},
    tree::{Spawned, Tree},
    within,
};

use crate::approvals::node;

const NO_ACTING: &str = "Not permitted to act on agents outside your subtree.";
const NO_EDGE: &str = "send_handoff requires an edge between";

/// A session with two workers, one with an alias.
struct TestSession {
    pair: Pair,
    tree: Tree,
    scout: Spawned,
    other: Spawned,
}

impl TestSession {
    async fn start() -> Self {
        let pair = Pair::start().await;
        let tree = pair.tree().await;
        let scout = tree
            .spawn_where("worker", |spawn| spawn.alias = String::from("Scout"))
            .await;
        let other = tree.spawn("worker").await;
        Self {
            pair,
            tree,
            scout,
            other,
        }
    }

    /// Returns the request of an edge in both directions.
    fn edge(&self) -> CreateEdgeRequest {
        CreateEdgeRequest {
            session_id: self.tree.session.clone(),
            from_thread_id: String::from("sCOUT"),
            to_thread_id: self.other.id.clone(),
            ..CreateEdgeRequest::default()
        }
    }

    /// Returns the request of a handoff from the scout to the other worker.
    fn handoff(&self) -> SendHandoffRequest {
        SendHandoffRequest {
            from_thread_id: self.scout.id.clone(),
            to_thread_id: self.other.id.clone(),
            message: String::from("look at this"),
            ..SendHandoffRequest::default()
        }
    }
}

async fn connect(mut client: Supervisor, request: CreateEdgeRequest) -> Result<Edge, Status> {
    let answer = within("the answer to an edge", client.create_edge(request)).await?;
    Ok(answer.into_inner().edge.unwrap())
}

async fn disconnect(mut client: Supervisor, request: DeleteEdgeRequest) -> Result<(), Status> {
    within("the answer to a deletion", client.delete_edge(request))
        .await
        .map(|_| ())
}

async fn send(mut client: Supervisor, request: SendHandoffRequest) -> Result<Handoff, Status> {
    let answer = within("the answer to a handoff", client.send_handoff(request)).await?;
    Ok(answer.into_inner().handoff.unwrap())
}

async fn list(mut client: Supervisor, request: ListEdgesRequest) -> (Vec<Edge>, String) {
    let answer = within("a page of edges", client.list_edges(request))
        .await
        .unwrap()
        .into_inner();
    (answer.edges, answer.next_page_token)
}

/// Returns whether a thread is offered `spawn_agent` and `spawn_node`.
async fn offered(tree: &Tree, thread: &str) -> (bool, bool) {
    let tools = tree.tools(thread).await;
    let has = |tool: &str| tools.iter().any(|described| described.name == tool);
    (has("spawn_agent"), has("spawn_node"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoff_along_edge_is_in_next_turn() {
    let test = TestSession::start().await;
    let TestSession {
        pair,
        tree,
        scout,
        other,
    } = &test;
    let mut runner = Runner::attach(pair, "r").await;
    let attempt = runner.run(&other.id).await;
    runner.complete(&attempt, "done").await;

    // The scout sends this handoff itself. Its token determines the sender.
    let whole = "line after line\n".repeat(100);
    let request = SendHandoffRequest {
        from_thread_id: String::new(),
        message: whole.clone(),
        structured_json: String::from("{\"leaks\": 1}"),
        artifacts: vec![ArtifactRef {
            r#type: String::from("diff"),
            r#ref: String::from("a.patch"),
        }],
        ok: Some(true),
        expectation: ResponseExpectation::Required.into(),
        context_ref: String::from("ticket 7"),
        ..test.handoff()
    };
    let own = pair.with_token(&scout.token);
    illegal_transition(send(own.clone(), request.clone()).await, NO_EDGE);

    let edge = connect(pair.operator(), test.edge()).await.unwrap();
    assert_eq!((&edge.from_thread_id, &edge.to_thread_id), (&scout.id, &other.id));
    let sent = send(own.clone(), request.clone()).await.unwrap();
    assert_eq!((&sent.from_thread_id, &sent.to_thread_id), (&scout.id, &other.id));
    assert_eq!(sent.message.unwrap().size, whole.len() as u64);

    tree.send(&other.id, "go on").await;
    let turn = runner.turn_of(&attempt).await;
    let shown = format!(
        "- from Scout ({}); ok; response=required; context=ticket 7\n  {}\n  structured: {{\"leaks\": 1}}\n  \
         artifact: diff a.patch",
        scout.id,
        "line after line\n  ".repeat(100)
    );
    assert!(task(&turn).contains(&shown), "{}", task(&turn));

    let deletion = DeleteEdgeRequest {
        session_id: tree.session.clone(),
        edge_id: edge.edge_id,
        ..DeleteEdgeRequest::default()
    };
    disconnect(pair.operator(), deletion).await.unwrap();
    illegal_transition(send(own, request).await, NO_EDGE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_without_edge_is_like_unknown_thread() {
    let test = TestSession::start().await;
    let TestSession { pair, other, .. } = &test;
    let stranger = pair.tree().await.spawn("worker").await;
    let head = test.tree.head().await;
    let mut told = Vec::new();
    for receiver in ["SCOUT", "wolf", UNKNOWN, &test.scout.id, &stranger.id] {
        let request = SendHandoffRequest {
            from_thread_id: String::new(),
            to_thread_id: receiver.to_owned(),
            ..test.handoff()
        };
        let status = illegal_transition(send(pair.with_token(&other.token), request).await, NO_EDGE);
        told.push((status.message().to_owned(), status.details().to_vec()));
    }
    assert!(told.iter().all(|answer| *answer == told[0]), "{told:?}");
    assert_eq!(test.tree.head().await, head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_node_is_offered_only_to_permitted_nodes() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let without_edges = SpawnAgentRequest {
        edge_management: EdgeManagement::None.into(),
        ..node(&tree, "orchestrator")
    };
    let without_tool = SpawnAgentRequest {
        permissions: Some(ToolCeiling {
            deny_list: vec![String::from("spawn_node")],
            ..ToolCeiling::default()
        }),
        ..node(&tree, "orchestrator")
    };
    for (request, expected) in [
        (node(&tree, "orchestrator"), (true, true)),
        (node(&tree, "planner"), (true, false)),
        (without_edges, (true, false)),
        (without_tool, (true, false)),
        (tree.request("orchestrator"), (true, false)),
    ] {
        let thread = tree.spawn_with(request).await.id;
        assert_eq!(offered(&tree, &thread).await, expected);
    }
    let lead = tree.spawn_with(node(&tree, "orchestrator")).await.id;
    tree.update(|session| session.edge_management = Some(EdgeManagement::None.into()))
        .await;
    assert_eq!(offered(&tree, &lead).await, (true, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retried_graph_calls_return_the_first_response() {
    let mut test = TestSession::start().await;
    let edge = CreateEdgeRequest {
        request_id: String::from("edge"),
        label: String::from("findings"),
        ..test.edge()
    };
    let handoff = SendHandoffRequest {
        request_id: String::from("handoff"),
        ..test.handoff()
    };
    let head = test.tree.head().await;
    let made = connect(test.pair.operator(), edge.clone()).await.unwrap();
    assert_eq!(made.label, "findings");
    let backwards = CreateEdgeRequest {
        from_thread_id: test.other.id.clone(),
        to_thread_id: test.scout.id.clone(),
        ..CreateEdgeRequest::default()
    };
    assert_eq!(
        connect(test.pair.operator(), backwards).await.unwrap(),
        made,
        "an equal edge"
    );
    let sent = send(test.pair.operator(), handoff.clone()).await.unwrap();
    let deletion = DeleteEdgeRequest {
        request_id: String::from("deletion"),
        session_id: test.tree.session.clone(),
        edge_id: made.edge_id.clone(),
    };
    disconnect(test.pair.operator(), deletion.clone()).await.unwrap();
    for restarts in [false, true] {
        if restarts {
            test.pair.restart().await;
        }
        assert_eq!(connect(test.pair.operator(), edge.clone()).await.unwrap(), made);
        assert_eq!(send(test.pair.operator(), handoff.clone()).await.unwrap(), sent);
        disconnect(test.pair.operator(), deletion.clone()).await.unwrap();
        assert_eq!(test.tree.by(test.pair.operator()).head().await, head + 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edge_pages_are_stable_while_edges_are_deleted() {
    let TestSession {
        pair,
        tree,
        scout,
        other,
    } = TestSession::start().await;
    let request = ListEdgesRequest {
        session_id: tree.session.clone(),
        page_size: 1,
        ..ListEdgesRequest::default()
    };
    let (first, page_token) = list(pair.operator(), request.clone()).await;
    assert_eq!(first[0].edge_id, scout.id);
    tree.close(&scout.id).await;
    let (rest, next) = list(pair.operator(), ListEdgesRequest { page_token, ..request }).await;
    assert_eq!((rest.len(), &rest[0].edge_id, next.as_str()), (1, &other.id, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edge_pages_contain_only_visible_edges() {
    let test = TestSession::start().await;
    let TestSession {
        pair,
        tree,
        scout,
        other,
    } = &test;
    let helper = tree.spawn_under(&scout.id, "worker").await;
    let made = connect(pair.operator(), test.edge()).await.unwrap();

    let mut found = Vec::new();
    let mut request = ListEdgesRequest {
        session_id: tree.session.clone(),
        page_size: 3,
        ..ListEdgesRequest::default()
    };
    loop {
        let (edges, next) = list(pair.operator(), request.clone()).await;
        assert!(edges.len() <= 3);
        found.extend(edges.into_iter().map(|edge| edge.edge_id));
        if next.is_empty() {
            break;
        }
        request.page_token = next;
    }
    assert_eq!(
        found,
        [&scout.id, &other.id, &helper.id, &made.edge_id].map(String::clone)
    );

    let ids = |edges: Vec<Edge>| -> Vec<String> { edges.into_iter().map(|edge| edge.edge_id).collect() };
    let of_other = ListEdgesRequest {
        thread_id: other.id.clone(),
        ..ListEdgesRequest::default()
    };
    let (edges, _) = list(pair.operator(), of_other.clone()).await;
    assert_eq!(ids(edges), [other.id.clone(), made.edge_id.clone()]);
    let (edges, _) = list(pair.with_token(&helper.token), ListEdgesRequest::default()).await;
    assert_eq!(ids(edges), std::slice::from_ref(&helper.id));
    outside_subtree(pair.with_token(&helper.token).list_edges(of_other).await, NO_ACTING);

    tree.close(&scout.id).await;
    let everything = ListEdgesRequest {
        session_id: tree.session.clone(),
        ..ListEdgesRequest::default()
    };
    let (edges, _) = list(pair.operator(), everything).await;
    assert_eq!(ids(edges), std::slice::from_ref(&other.id), "between open threads only");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn largest_handoff_fits_into_record() {
    let test = TestSession::start().await;
    connect(test.pair.operator(), test.edge()).await.unwrap();
    // Characters of two bytes each, and previews with characters of four bytes.
    let reference = ArtifactRef {
        r#type: "é".repeat(32),
        r#ref: "é".repeat(32),
    };
    let request = SendHandoffRequest {
        message: "𝄞".repeat(262_144),
        structured_json: format!("\"{}\"", "𝄞".repeat(262_143)),
        artifacts: vec![reference; 64],
        ok: Some(false),
        ok_reason: "x".repeat(256),
        expectation: ResponseExpectation::Required.into(),
        reply_to_thread_id: test.tree.root.clone(),
        context_ref: "x".repeat(1_024),
        ..test.handoff()
    };
    let sent = send(test.pair.operator(), request).await.unwrap();
    assert_eq!(sent.artifacts.len(), 64);
    assert_eq!(sent.message.unwrap().size, 1_048_576);
}

/// Returns the tools in the deny lists of all layers of a thread's policy.
fn denied(thread: &Thread) -> Vec<String> {
    let policy = thread.tool_policy.clone().unwrap_or_default();
    let mut denied: Vec<String> = policy.layers.into_iter().flat_map(|layer| layer.deny_list).collect();
    denied.sort();
    denied
}

const COMMANDS: [&str; 2] = ["exec_command", "write_stdin"];
const WRITES: [&str; 3] = ["apply_patch", "delete_file", "write_file"];

#[tokio::test]
async fn graph_thread_has_the_tools_of_its_capabilities() {
    let pair = Pair::start().await;
    let templates = format!("{}/docs/templates", pair.project());
    fs::create_dir_all(format!("{}/.git", pair.project())).unwrap();
    fs::create_dir_all(&templates).unwrap();
    fs::write(format!("{templates}/bare.md"), "Work.\n").unwrap();
    let tree = pair
        .tree_where(|session| session.role_template = String::from("orchestrator"))
        .await;
    let root = tree.thread(&tree.root).await;
    assert_eq!(root.agent_type, "orchestrator");
    assert_eq!(root.source.as_ref().unwrap().dialect(), Dialect::Graph);
    assert_eq!(
        denied(&root),
        [&WRITES[..2], &COMMANDS[..1], &WRITES[2..], &COMMANDS[1..]].concat()
    );
    let node = |role_template: &str, capabilities: &[&str]| SpawnAgentRequest {
        role_template: role_template.to_owned(),
        capabilities: capabilities.iter().map(|name| (*name).to_owned()).collect(),
        ..tree.request("")
    };
    let spawn = async |request| tree.try_spawn(request).await.unwrap();
    // The orchestrator's own restriction does not apply to its nodes.
    let implementer = spawn(node("implementer", &[])).await;
    assert_eq!(denied(&implementer.thread.unwrap()), Vec::<String>::new());
    assert_eq!(implementer.warnings, Vec::<String>::new());
    let reviewer = spawn(node("reviewer", &[])).await;
    assert_eq!(denied(&reviewer.thread.unwrap()), WRITES);
    let narrowed = spawn(node("implementer", &["edit_code"])).await;
    assert_eq!(denied(&narrowed.thread.unwrap()), COMMANDS);
    let bare = spawn(node("bare", &[])).await;
    assert_eq!(denied(&bare.thread.unwrap()).len(), WRITES.len() + COMMANDS.len());
    let warned = |part: &str| bare.warnings.iter().any(|warning| warning.contains(part));
    assert!(
        warned("declares no capability edit_code or write_docs"),
        "{:?}",
        bare.warnings
    );
    assert!(warned("declares no capability run_commands"), "{:?}", bare.warnings);
}
