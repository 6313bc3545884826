//! Graph templates: which callers may use them in spawns, and which spawns wait for an operator.

use std::{fs, path::Path};

use tonic::Code;
use troupe_proto::{
    common::v1::{EdgeManagement, Scope},
    reason::Reason,
    supervisor::v1::{
        Approval, ApprovalDecision, ApprovalKind, ApprovalTimeoutAction, ListApprovalsRequest, ResolveApprovalRequest,
        SpawnAgentRequest, StatusKind,
    },
};
use troupe_tests::{
    accepted,
    client::Supervisor,
    events::{about, names, statuses},
    pair::{Pair, VIEWER},
    refusal::{illegal_transition, invalid, not_permitted, refused},
    runner::Runner,
    tree::{Spawned, Tree, kind},
    within,
};

/// A graph template of the project that declares every edge, so that its threads may spawn.
const LEAD: &str =
    "[template]\nname = \"lead\"\nversion = \"1\"\ncapabilities = [\"edge_management_all\"]\n\nYou lead.\n";

/// Writes the graph template [`LEAD`] to the project. Spawns by its threads wait for an operator.
fn write_lead(pair: &Pair) {
    let templates = Path::new(&pair.project()).join("docs/templates");
    fs::create_dir_all(&templates).unwrap();
    fs::write(templates.join("lead.md"), LEAD).unwrap();
}

/// Returns an operator's spawn request for a graph template, below the root.
pub(crate) fn node(tree: &Tree, role_template: &str) -> SpawnAgentRequest {
    SpawnAgentRequest {
        role_template: role_template.to_owned(),
        ..tree.request("")
    }
}

/// Starts a pair with a session and a thread of the graph template [`LEAD`].
pub(crate) async fn pair_with_lead() -> (Pair, Tree, Spawned) {
    let pair = Pair::start().await;
    write_lead(&pair);
    let tree = pair.tree().await;
    let lead = tree.spawn_with(node(&tree, "lead")).await;
    (pair, tree, lead)
}

/// Returns a thread's spawn request for a graph template.
fn own_node(role_template: &str) -> SpawnAgentRequest {
    SpawnAgentRequest {
        role_template: role_template.to_owned(),
        message: Some(String::from("the task")),
        label: String::from("Docs Agent"),
        return_token: true,
        ..SpawnAgentRequest::default()
    }
}

async fn spawn_by(pair: &Pair, parent: &Spawned, request: SpawnAgentRequest) -> Spawned {
    let mut client = pair.with_token(&parent.token);
    let answer = within("the answer to a spawn", client.spawn_agent(request)).await;
    Spawned::of(answer.unwrap().into_inner())
}

async fn listed(mut client: Supervisor, request: ListApprovalsRequest) -> Vec<Approval> {
    let answer = within("the approvals", client.list_approvals(request)).await;
    answer.unwrap().into_inner().approvals
}

async fn resolved_too(tree: &Tree) -> Vec<Approval> {
    let request = ListApprovalsRequest {
        session_id: tree.session.clone(),
        include_resolved: true,
        ..ListApprovalsRequest::default()
    };
    listed(tree.client(), request).await
}

fn decision(tree: &Tree, approval: &Approval, grant: bool) -> ResolveApprovalRequest {
    ResolveApprovalRequest {
        session_id: tree.session.clone(),
        approval_id: approval.approval_id.clone(),
        grant,
        reason: String::from("approved by me"),
        ..ResolveApprovalRequest::default()
    }
}

async fn decide(tree: &Tree, request: ResolveApprovalRequest) -> Approval {
    let answer = within("a decision", tree.client().resolve_approval(request)).await;
    answer.unwrap().into_inner().approval.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_by_project_template_awaits_operator() {
    let (pair, tree, lead) = pair_with_lead().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let beside = tree.spawn("worker").await;
    assert_eq!(lead.thread.source.as_ref().unwrap().scope(), Scope::Project);
    let child = spawn_by(&pair, &lead, own_node("planner")).await;
    assert_eq!(kind(&child.thread), StatusKind::AwaitingApproval);

    let waiting = tree.pending_approvals().await;
    let approval = &waiting[0];
    let digest = child.thread.source.clone().unwrap().digest;
    let subject = format!(
        "Spawn node: Docs Agent (planner)\nasked by: lead {}\ntemplate: system scope, sha256 {digest}\n",
        lead.id
    );
    assert!(approval.subject.starts_with(&subject), "{approval:?}");
    assert_eq!(approval.thread_id, child.id);
    assert_eq!(approval.kind(), ApprovalKind::Spawn);
    assert_eq!(approval.decision(), ApprovalDecision::Unspecified);
    let deadline = approval.deadline.as_ref().unwrap().seconds;
    assert_eq!(deadline - approval.create_time.as_ref().unwrap().seconds, 600);

    // A thread sees the approvals of its subtree, a viewer all approvals.
    let own = ListApprovalsRequest::default();
    assert_eq!(listed(pair.with_token(&lead.token), own.clone()).await, waiting);
    assert!(listed(pair.with_token(&beside.token), own).await.is_empty());
    let by_viewer = tree.by(pair.with_token(VIEWER));
    assert_eq!(by_viewer.pending_approvals().await, waiting);
    assert_eq!(tree.watch().await.whole_snapshot().await.approvals, waiting);
    let mut elsewhere = tree.watch_where(|watch| watch.thread_id = beside.id.clone()).await;
    let elsewhere = elsewhere.whole_snapshot().await;
    assert!(elsewhere.approvals.is_empty(), "outside of the subtree");

    // Until the decision, the thread cannot do anything, but it can receive input.
    let by_itself = tree.by(pair.with_token(&child.token));
    let answer = by_itself.try_thread(&child.id).await;
    not_permitted(answer, "waits for an operator's approval");
    let told = tree.send(&child.id, "and this").await;
    assert_eq!(kind(&told), StatusKind::AwaitingApproval);

    let granted = tree.resolve(&approval.approval_id, true, "approved by me").await;
    assert_eq!(granted.decision(), ApprovalDecision::Granted);
    assert_eq!(
        (granted.decided_by.as_str(), granted.reason.as_str()),
        ("operator:tester", "approved by me")
    );
    runner.start_of(&child.id).await;
    by_itself.thread(&child.id).await;
    assert!(tree.pending_approvals().await.is_empty());
    assert!(tree.watch().await.whole_snapshot().await.approvals.is_empty());

    let log = tree.log().await;
    assert_eq!(
        &names(&about(&log, &child.id))[..5],
        [
            "ThreadSpawned",
            "ApprovalRequested",
            "InputQueued",
            "ApprovalResolved",
            "ThreadAdmitted"
        ]
    );
    assert_eq!(statuses(&log)[&child.id], StatusKind::PendingInit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_decision_is_final() {
    let (pair, tree, lead) = pair_with_lead().await;
    spawn_by(&pair, &lead, own_node("planner")).await;
    let approval = tree.pending_approvals().await.remove(0);
    let request = ResolveApprovalRequest {
        request_id: String::from("once"),
        ..decision(&tree, &approval, true)
    };
    let granted = decide(&tree, request.clone()).await;
    let head = tree.head().await;
    assert_eq!(decide(&tree, request.clone()).await, granted, "a retry");
    let answer = tree
        .client()
        .resolve_approval(ResolveApprovalRequest {
            grant: false,
            ..request
        })
        .await;
    refused(answer, Code::AlreadyExists, Reason::RequestIdReused, "once");
    for grant in [true, false] {
        let answer = tree.client().resolve_approval(decision(&tree, &approval, grant)).await;
        let text = "was decided before: granted by operator:tester; a decision is final";
        illegal_transition(answer, text);
    }
    assert_eq!(tree.head().await, head);
    assert_eq!(resolved_too(&tree).await, [granted]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_setting_limits_time_for_decisions() {
    let pair = Pair::start().await;
    write_lead(&pair);
    let opened = async |seconds, action: ApprovalTimeoutAction| {
        let tree = pair
            .tree_where(|session| {
                session.approval_timeout = Some(prost_types::Duration { seconds, nanos: 0 });
                session.on_approval_timeout = action.into();
            })
            .await;
        let lead = tree.spawn_with(node(&tree, "lead")).await;
        let asked = spawn_by(&pair, &lead, own_node("lead")).await;
        let listed = tree.pending_approvals().await;
        (tree, asked.id, listed[0].clone())
    };
    let (tree, asked, waiting) = opened(1, ApprovalTimeoutAction::Deny).await;
    assert_eq!(tree.now().await.approval_timeout.map(|span| span.seconds), Some(1));
    let mut watch = tree.watch_after(0).await;
    watch.until_kind_of(&asked, "ThreadClosed").await;
    let expired = resolved_too(&tree).await;
    assert_eq!(
        (&expired[0].approval_id, expired[0].decision()),
        (&waiting.approval_id, ApprovalDecision::Expired)
    );
    assert_eq!(expired[0].reason, "no decision within 1 s");
    for (seconds, action) in [(0, ApprovalTimeoutAction::Deny), (1, ApprovalTimeoutAction::Keep)] {
        let (_, _, waiting) = opened(seconds, action).await;
        assert_eq!(waiting.deadline, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_settings_select_nodes_that_may_spawn() {
    let mut pair = Pair::start().await;
    write_lead(&pair);
    let tree = pair
        .tree_where(|session| session.orchestrators = vec![String::from("lead")])
        .await;
    let session = tree.now().await;
    assert_eq!(session.orchestrators, ["lead"]);
    assert_eq!(session.edge_management(), EdgeManagement::All);
    let lead = tree.spawn_with(node(&tree, "lead")).await;
    let planner = spawn_by(&pair, &lead, own_node("planner")).await;
    assert_eq!(kind(&planner.thread), StatusKind::PendingInit);

    let updated = tree
        .update(|session| {
            session.replace_orchestrators = true;
            session.edge_management = Some(EdgeManagement::Self_.into());
        })
        .await;
    assert!(updated.orchestrators.is_empty());
    assert_eq!(updated.edge_management(), EdgeManagement::Self_);
    let planner = spawn_by(&pair, &lead, own_node("planner")).await;
    assert_eq!(kind(&planner.thread), StatusKind::AwaitingApproval);

    let waiting = tree.pending_approvals().await;
    let tree = tree.after_restart(&mut pair).await;
    assert_eq!(tree.pending_approvals().await, waiting);
    assert_eq!(tree.now().await.edge_management(), EdgeManagement::Self_);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_may_restrict_declared_capabilities() {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    let narrowed = |capabilities: &[&str], edges: EdgeManagement| SpawnAgentRequest {
        capabilities: capabilities.iter().map(|name| (*name).to_owned()).collect(),
        edge_management: edges.into(),
        ..node(&tree, "orchestrator")
    };
    for (capabilities, edges, expected) in [
        (&["spawn_nodes"][..], EdgeManagement::Unspecified, EdgeManagement::All),
        (&["delegate"], EdgeManagement::Unspecified, EdgeManagement::None),
        (&["delegate"], EdgeManagement::All, EdgeManagement::None),
        (&[], EdgeManagement::None, EdgeManagement::None),
        (&[], EdgeManagement::Self_, EdgeManagement::Self_),
    ] {
        let spawned = tree.spawn_with(narrowed(capabilities, edges)).await;
        assert_eq!(spawned.thread.edge_management(), expected, "{capabilities:?} {edges:?}");
    }
    let answer = tree
        .try_spawn(narrowed(&["delegate", "fly"], EdgeManagement::Unspecified))
        .await;
    let text = "capability \"fly\" is not declared by \"orchestrator\"; it declares: edge_management_all, spawn_nodes";
    invalid(answer, text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_pages_are_stable_while_approvals_resolve() {
    let (pair, tree, lead) = pair_with_lead().await;
    let first = spawn_by(&pair, &lead, own_node("planner")).await.id;
    let second = spawn_by(&pair, &lead, own_node("planner")).await.id;
    let waiting = tree.pending_approvals().await;
    let asked: Vec<&String> = waiting.iter().map(|approval| &approval.thread_id).collect();
    assert_eq!(asked, [&first, &second], "oldest first");
    let mut page_token = String::new();
    for approval in &waiting {
        let request = ListApprovalsRequest {
            session_id: tree.session.clone(),
            page_size: 1,
            page_token,
            ..ListApprovalsRequest::default()
        };
        let page = accepted("a page of approvals", tree.client().list_approvals(request)).await;
        assert_eq!(page.approvals, std::slice::from_ref(approval));
        page_token = page.next_page_token;
        tree.resolve(&approval.approval_id, false, "approved by me").await;
    }
    assert_eq!(page_token, "");
}
