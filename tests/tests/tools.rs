//! Tool calls: what may run, what an operator must agree to, and what of it the log tells.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use tonic::{Code, Status};
use troupe_proto::{
    common::v1::Mode,
    reason::Reason,
    supervisor::v1::{
        ApprovalKind, AuthorizeToolRequest, AuthorizeToolResponse, ConditionKind, CreateSessionRequest,
        ListApprovalsRequest, ResolveApprovalRequest, SpawnAgentRequest, ToolCeiling, ToolDecision, ToolRequest,
        UpdateSessionRequest, attach_request::Message as ToSupervisor, attach_response::Message as FromSupervisor,
        event::Kind,
    },
};
use troupe_tests::{
    client::Supervisor,
    pair::Pair,
    refusal::refused,
    runner::{Attempt, Runner},
    tree::{Spawned, Tree, has},
    within,
};

/// A session of whose commands an operator hears, with a thread at work.
struct Stage {
    pair: Pair,
    tree: Tree,
    runner: Runner,
    worker: Spawned,
    attempt: Attempt,
}

impl Stage {
    async fn set() -> Self {
        let pair = Pair::start().await;
        let tree = pair
            .tree_with(CreateSessionRequest {
                approve_tools: vec![String::from("exec_*")],
                ..CreateSessionRequest::default()
            })
            .await;
        let mut runner = Runner::attach(&pair, "r").await;
        let worker = tree.spawn("worker").await;
        let attempt = runner.run(&worker.id).await;
        Self {
            pair,
            tree,
            runner,
            worker,
            attempt,
        }
    }

    fn agent(&self) -> Supervisor {
        self.pair.with_token(&self.worker.token)
    }

    async fn ask(&self, request: AuthorizeToolRequest) -> AuthorizeToolResponse {
        authorize(self.agent(), request).await.unwrap()
    }

    /// The calls that wait for an operator, by id.
    async fn waiting(&self) -> Vec<String> {
        let request = ListApprovalsRequest {
            session_id: self.tree.session.clone(),
            ..ListApprovalsRequest::default()
        };
        let listed = self.tree.client().list_approvals(request).await.unwrap().into_inner();
        for approval in &listed.approvals {
            assert_eq!(approval.kind(), ApprovalKind::Tool);
            assert_eq!(approval.thread_id, self.worker.id);
        }
        listed
            .approvals
            .into_iter()
            .map(|approval| approval.approval_id)
            .collect()
    }

    async fn resolve(&self, approval_id: &str, grant: bool) {
        let request = ResolveApprovalRequest {
            session_id: self.tree.session.clone(),
            approval_id: approval_id.to_owned(),
            grant,
            reason: String::from("looked at"),
            ..ResolveApprovalRequest::default()
        };
        self.tree.client().resolve_approval(request).await.unwrap();
    }

    async fn waits_for_an_operator(&self) -> bool {
        has(
            &self.tree.thread(&self.worker.id).await,
            ConditionKind::AwaitingToolApproval,
        )
    }
}

async fn authorize(mut client: Supervisor, request: AuthorizeToolRequest) -> Result<AuthorizeToolResponse, Status> {
    within("a decision", client.authorize_tool(request))
        .await
        .map(tonic::Response::into_inner)
}

fn call(tool: &str, arguments: &str) -> AuthorizeToolRequest {
    AuthorizeToolRequest {
        tool: tool.to_owned(),
        arguments_json: arguments.to_owned(),
        ..AuthorizeToolRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_an_operator_and_for_nothing_else() {
    let stage = Stage::set().await;
    assert!(stage.ask(call("read_file", "{}")).await.allowed);

    let make = call("exec_command", r#"{"cmd":"make"}"#);
    let asked = stage.ask(make.clone()).await;
    assert!(!asked.allowed && !asked.approval_id.is_empty(), "{asked:?}");
    assert_eq!(stage.ask(make.clone()).await, asked, "asking again asks nobody anew");
    assert_eq!(stage.waiting().await, std::slice::from_ref(&asked.approval_id));
    assert!(stage.waits_for_an_operator().await);

    stage.resolve(&asked.approval_id, true).await;
    let granted = stage.ask(make).await;
    assert!(granted.allowed, "{granted:?}");
    assert_eq!(granted.approval_id, asked.approval_id);
    assert!(!stage.waits_for_an_operator().await);

    // The grant was for that call, not for its tool.
    let other = stage.ask(call("exec_command", r#"{"cmd":"rm -r ."}"#)).await;
    assert!(!other.allowed && other.approval_id != asked.approval_id, "{other:?}");
    stage.resolve(&other.approval_id, false).await;
    let denied = stage.ask(call("exec_command", r#"{"cmd":"rm -r ."}"#)).await;
    assert!(!denied.allowed);
    assert_eq!(denied.reason, "an operator denied the call: looked at");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_answered_by_the_decision() {
    let mut stage = Stage::set().await;
    let patient = AuthorizeToolRequest {
        wait: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        ..call("exec_command", r#"{"cmd":"make"}"#)
    };
    let waiting = tokio::spawn(authorize(stage.agent(), patient));
    let question = ToolRequest {
        request_id: String::from("q"),
        thread_id: stage.worker.id.clone(),
        generation: stage.attempt.generation,
        tool: String::from("command"),
        arguments_json: String::from(r#"{"cmd":"ls"}"#),
        runner_kind: String::from("process"),
        ..ToolRequest::default()
    };
    stage.runner.say(ToSupervisor::ToolRequest(question)).await;
    let mut watch = stage.tree.watch_after(0).await;
    let mut asked = Vec::new();
    while asked.len() < 2 {
        if let Some(Kind::ApprovalRequested(requested)) = watch.event().await.kind {
            asked.push(requested.approval_id);
        }
    }
    for approval in &asked {
        stage.resolve(approval, true).await;
    }
    assert!(waiting.await.unwrap().unwrap().allowed);
    let decision: ToolDecision = stage
        .runner
        .next("a decision", |message| match message {
            FromSupervisor::ToolDecision(decision) => Some(decision.clone()),
            _ => None,
        })
        .await;
    assert!(decision.allowed, "{decision:?}");
    assert_eq!(decision.request_id, "q");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_mode_binds_the_next_call() {
    let stage = Stage::set().await;
    let write = |path: &str| AuthorizeToolRequest {
        resolved_paths: vec![format!("{}/{path}", stage.pair.project())],
        ..call("apply_patch", "{}")
    };
    assert!(stage.ask(write("src/main.rs")).await.allowed);
    let request = UpdateSessionRequest {
        session_id: stage.tree.session.clone(),
        mode: Some(Mode::Planning.into()),
        ..UpdateSessionRequest::default()
    };
    stage.tree.client().update_session(request).await.unwrap();
    let refused = stage.ask(write("src/main.rs")).await;
    assert_eq!(refused.reason, "write restricted to docs/ in PLANNING mode");
    assert!(stage.ask(write("docs/plan.md")).await.allowed);
    assert!(
        !stage.ask(call("apply_patch", "{}")).await.allowed,
        "where it writes is not known"
    );
}

/// Each would be a record more when the agent is closed, and nobody could decide them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_calls_of_an_agent_wait_for_an_operator() {
    let stage = Stage::set().await;
    for number in 0..64 {
        let asked = stage.ask(call("exec_command", &number.to_string())).await;
        assert!(!asked.approval_id.is_empty(), "{asked:?}");
    }
    refused(
        authorize(stage.agent(), call("exec_command", "64")).await,
        Code::ResourceExhausted,
        Reason::LimitExceeded,
        "has 64 tool calls that wait for an operator; wait until some are decided",
    );
    stage.resolve(&stage.waiting().await[0], false).await;
    assert!(!stage.ask(call("exec_command", "64")).await.approval_id.is_empty());
}

/// It names its tools as it likes, and must not fill the log with names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_kinds_of_refusals_are_told_as_one() {
    let mut stage = Stage::set().await;
    let request = SpawnAgentRequest {
        permissions: Some(ToolCeiling {
            deny_list: vec![String::from("denied_*")],
            ..ToolCeiling::default()
        }),
        ..stage.tree.request("worker")
    };
    stage.worker = Spawned::of(stage.tree.try_spawn(request).await.unwrap());
    stage.runner.run(&stage.worker.id).await;
    let mut watch = stage.tree.watch_after(stage.tree.head().await).await;
    for number in 0..100 {
        let call = call(&format!("denied_{number}"), "{}");
        assert!(!stage.ask(call).await.allowed);
    }
    let mut tools = Vec::new();
    while tools.last().is_none_or(|tool| tool != "other tools") {
        if let Some(Kind::ToolDenied(denied)) = watch.event().await.kind {
            tools.push(denied.tool);
        }
    }
    assert_eq!(tools.len(), 33, "{tools:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_insists_on_is_one_event() {
    let stage = Stage::set().await;
    let mut watch = stage.tree.watch_after(stage.tree.head().await).await;
    for _ in 0..100 {
        assert!(!stage.ask(call("spawn_agent", "{}")).await.allowed);
    }
    let event = watch.event().await;
    match event.kind {
        Some(Kind::ToolDenied(denied)) => assert_eq!((denied.tool.as_str(), denied.count), ("spawn_agent", 1)),
        other => panic!("the first refusal is told at once: {other:?}"),
    }
    assert_eq!(stage.tree.head().await, event.sequence, "the others are counted");
}
