//! Tool calls: which ones run, which ones need an operator's approval, and which data of them the log contains.

use std::{fmt::Debug, future::Future, time::Duration};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::{Code, Request, Status};
use troupe_proto::{
    common::v1::Mode,
    fault::{metadata_of, reason_of},
    reason::Reason,
    supervisor::v1::{
        Approval, ApprovalKind, AuthorizeToolRequest, AuthorizeToolResponse, CloseAgentRequest, ConditionKind,
        CreateSessionRequest, ListActiveAgentsRequest, RunnerHello, RunnerKind, StatusKind, ToolCeiling, ToolRequest,
        attach_request::Message as ToSupervisor, event::Kind,
    },
};
use troupe_tests::{
    MAX_WAIT,
    client::Supervisor,
    content::read,
    pair::{Pair, VIEWER},
    refusal::{not_permitted, outside_subtree, refused},
    runner::{Attempt, Runner, hello},
    tree::{Spawned, Tree, has, input, kind},
    within,
};

/// A session of whose calls of some tools an operator hears, with a thread at work.
struct TestCluster {
    pair: Pair,
    tree: Tree,
    runner: Runner,
    worker: Spawned,
    attempt: Attempt,
}

impl TestCluster {
    async fn start() -> Self {
        Self::with("worker", "exec_*").await
    }

    async fn with(role: &str, approve: &str) -> Self {
        let request = CreateSessionRequest {
            approve_tools: vec![approve.to_owned()],
            ..CreateSessionRequest::default()
        };
        Self::of(role, request, hello("r")).await
    }

    /// A session in this mode. The operating system confines the program to the workspace, or not.
    async fn confined(mode: Mode, enforces_workspace: bool) -> Self {
        let request = CreateSessionRequest {
            mode: mode.into(),
            ..CreateSessionRequest::default()
        };
        let mut hello = hello("r");
        hello.kinds[0].enforces_workspace = enforces_workspace;
        Self::of("worker", request, hello).await
    }

    async fn of(role: &str, request: CreateSessionRequest, hello: RunnerHello) -> Self {
        let pair = Pair::start().await;
        let tree = Box::pin(pair.tree_with(request)).await;
        let mut runner = Runner::greet(&pair, hello).await;
        let worker = tree.spawn(role).await;
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
        let approvals = self.tree.pending_approvals().await;
        for approval in &approvals {
            assert_eq!(approval.kind(), ApprovalKind::Tool);
            assert_eq!(approval.thread_id, self.worker.id);
        }
        approvals.into_iter().map(|approval| approval.approval_id).collect()
    }

    async fn resolve(&self, approval_id: &str, grant: bool) {
        self.tree.resolve(approval_id, grant, "looked at").await;
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
async fn gated_call_waits_only_for_an_operator() {
    let cluster = TestCluster::start().await;
    assert!(cluster.ask(call("read_file", "{}")).await.allowed);

    let make = call("exec_command", r#"{"cmd":"make"}"#);
    let asked = cluster.ask(make.clone()).await;
    assert!(!asked.allowed && !asked.approval_id.is_empty(), "{asked:?}");
    assert_eq!(
        cluster.ask(make.clone()).await,
        asked,
        "a repeated call causes no second approval"
    );
    assert_eq!(cluster.waiting().await, std::slice::from_ref(&asked.approval_id));
    assert!(cluster.waits_for_an_operator().await);

    cluster.resolve(&asked.approval_id, true).await;
    let granted = cluster.ask(make).await;
    assert!(granted.allowed, "{granted:?}");
    assert_eq!(granted.approval_id, asked.approval_id);
    assert!(!cluster.waits_for_an_operator().await);

    // The grant was for that call, not for its tool.
    let other = cluster.ask(call("exec_command", r#"{"cmd":"rm -r ."}"#)).await;
    assert!(!other.allowed && other.approval_id != asked.approval_id, "{other:?}");
    cluster.resolve(&other.approval_id, false).await;
    let denied = cluster.ask(call("exec_command", r#"{"cmd":"rm -r ."}"#)).await;
    assert!(!denied.allowed);
    assert_eq!(denied.reason, "an operator denied the call: looked at");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_decision_completes_waiting_calls() {
    let mut cluster = TestCluster::start().await;
    let patient = AuthorizeToolRequest {
        wait: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        ..call("exec_command", r#"{"cmd":"make"}"#)
    };
    let waiting = tokio::spawn(authorize(cluster.agent(), patient));
    cluster.runner.say(ToSupervisor::ToolRequest(question(&cluster))).await;
    let mut watch = cluster.tree.watch_after(0).await;
    for _ in 0..2 {
        let asked = watch.approval().await;
        cluster.resolve(&asked.approval_id, true).await;
    }
    assert!(waiting.await.unwrap().unwrap().allowed);
    let decision = cluster.runner.decision().await;
    assert!(decision.allowed, "{decision:?}");
    assert_eq!(decision.request_id, "q");
}

/// The whole call that an approval covers, as an operator reads it.
async fn covered(cluster: &TestCluster, approval: &Approval) -> Value {
    let digest = &approval.content.as_ref().expect("the call is content").digest;
    let bytes = read(&cluster.tree.client(), &cluster.tree.session, digest)
        .await
        .unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_covers_one_digest_of_redacted_arguments() {
    let mut cluster = TestCluster::start().await;
    let mut watch = cluster.tree.watch_after(cluster.tree.head().await).await;
    let ask = |id: &str, digit: &str| ToolRequest {
        request_id: id.to_owned(),
        arguments_json: String::from(r#"{"cmd":"<redacted>"}"#),
        arguments_sha256: digit.repeat(64),
        ..question(&cluster)
    };
    let (first, same, other) = (ask("first", "a"), ask("same", "a"), ask("other", "b"));
    cluster.runner.say(ToSupervisor::ToolRequest(first)).await;
    let asked = watch.approval().await;
    cluster.resolve(&asked.approval_id, true).await;
    assert!(cluster.runner.decision().await.allowed);
    assert!(cluster.runner.ask(same).await.allowed, "the same call is granted");

    cluster.runner.say(ToSupervisor::ToolRequest(other)).await;
    let second = watch.approval().await;
    assert_ne!(second.approval_id, asked.approval_id);
    assert_ne!(second.call_sha256, asked.call_sha256);
    cluster.resolve(&second.approval_id, false).await;
    assert!(!cluster.runner.decision().await.allowed);

    let malformed = ToolRequest {
        arguments_sha256: String::from("A"),
        ..question(&cluster)
    };
    let refused = cluster.runner.ask(malformed).await;
    assert_eq!(
        refused.reason,
        "arguments_sha256 must be 64 lower-case hexadecimal digits or empty"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_covers_one_set_of_paths() {
    let cluster = TestCluster::with("worker", "apply_patch").await;
    let write = |path: &str| AuthorizeToolRequest {
        resolved_paths: vec![format!("{}/{path}", cluster.pair.project())],
        ..call("apply_patch", "{}")
    };
    let asked = cluster.ask(write("a")).await;
    cluster.resolve(&asked.approval_id, true).await;
    assert!(cluster.ask(write("a")).await.allowed);
    let other = cluster.ask(write("b")).await;
    assert!(!other.allowed && other.approval_id != asked.approval_id, "{other:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_sees_the_whole_call_and_its_threads() {
    let cluster = TestCluster::start().await;
    let command = format!("echo {} && rm -r .", "x".repeat(10_000));
    let path = format!("{}/a", cluster.pair.project());
    let ask = AuthorizeToolRequest {
        resolved_paths: vec![path.clone()],
        ..call("exec_command", &json!({"cmd": command}).to_string())
    };
    cluster.ask(ask).await;
    let approvals = cluster.tree.pending_approvals().await;
    let [approval] = &approvals[..] else {
        panic!("one waits, not {approvals:?}");
    };
    assert_eq!(
        covered(&cluster, approval).await,
        json!({
            "tool": "exec_command",
            "runner_kind": "",
            "arguments": {"cmd": command},
            "resolved_paths": [path],
        })
    );
    let threads: Vec<&str> = approval
        .threads
        .iter()
        .map(|thread| thread.thread_id.as_str())
        .collect();
    assert_eq!(threads, [cluster.worker.id.as_str(), cluster.tree.root.as_str()]);
    assert_eq!(approval.threads[0].agent_type, "worker");

    let viewer = cluster.pair.with_token(VIEWER);
    let seen = cluster.tree.by(viewer.clone()).pending_approvals().await;
    assert_eq!(
        (&seen[0].call_sha256, &seen[0].content),
        (&approval.call_sha256, &approval.content)
    );
    let digest = &approval.content.as_ref().unwrap().digest;
    let answer = read(&viewer, &cluster.tree.session, digest).await;
    let text = "viewers read the contents of artifacts only; ask an operator for this one";
    not_permitted(answer, text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_too_large_to_show_is_denied_only_if_gated() {
    let mut cluster = TestCluster::start().await;
    let large = ToolRequest {
        arguments_json: String::new(),
        arguments_sha256: "a".repeat(64),
        omitted_bytes: 100_000,
        ..question(&cluster)
    };
    let ungated = ToolRequest {
        tool: String::from("write_file"),
        resolved_paths: vec![format!("{}/a", cluster.pair.project())],
        ..large.clone()
    };
    let allowed = cluster.runner.ask(ungated).await;
    assert!(allowed.allowed, "{allowed:?}");
    let denied = cluster.runner.ask(large).await;
    assert!(
        !denied.allowed && denied.reason.contains("100000 bytes of arguments"),
        "{denied:?}"
    );
    assert!(cluster.waiting().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_without_paths_needs_a_confining_runner() {
    for (enforces_workspace, mode, allowed) in [
        (false, Mode::Implementation, false),
        (true, Mode::Implementation, true),
        (true, Mode::Planning, false),
    ] {
        let cluster = TestCluster::confined(mode, enforces_workspace).await;
        let decided = cluster.ask(call("apply_patch", "{}")).await;
        assert_eq!(decided.allowed, allowed, "{enforces_workspace} {mode:?}: {decided:?}");
        if !enforces_workspace {
            assert!(decided.reason.contains("does not name the files"), "{decided:?}");
        }
    }
}

/// A command in PLANNING, by a runner whose kind confines or not and that says whether its view is limited to docs/.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_in_planning_need_a_view_of_docs_only() {
    for (enforces_workspace, docs_only, allowed) in [(true, true, true), (true, false, false), (false, true, false)] {
        let mut cluster = TestCluster::confined(Mode::Planning, enforces_workspace).await;
        let request = ToolRequest {
            tool: String::from("exec_command"),
            runner_kind: String::from("test"),
            docs_only,
            ..question(&cluster)
        };
        let decision = cluster.runner.ask(request).await;
        assert_eq!(
            decision.allowed, allowed,
            "{enforces_workspace} {docs_only}: {decision:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_does_not_choose_the_kind_of_its_call() {
    let mut hello = hello("r");
    hello.kinds[0].enforces_workspace = false;
    hello.kinds.push(RunnerKind {
        kind: String::from("claude"),
        enforces_tools: true,
        enforces_read_only: true,
        enforces_workspace: true,
    });
    let cluster = TestCluster::of("worker", CreateSessionRequest::default(), hello).await;
    let request = AuthorizeToolRequest {
        runner_kind: String::from("claude"),
        ..call("apply_patch", "{}")
    };
    assert!(!cluster.ask(request.clone()).await.allowed);
    let request = AuthorizeToolRequest {
        thread_id: cluster.worker.id.clone(),
        session_id: cluster.tree.session.clone(),
        ..request
    };
    let of_operator = authorize(cluster.tree.client(), request).await.unwrap();
    assert!(of_operator.allowed, "{of_operator:?}");
}

/// Each would be one more record when the agent is closed, and no operator could decide them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_calls_of_an_agent_are_limited() {
    let cluster = TestCluster::start().await;
    for number in 0..64 {
        let asked = cluster.ask(call("exec_command", &number.to_string())).await;
        assert!(!asked.approval_id.is_empty(), "{asked:?}");
    }
    let answer = authorize(cluster.agent(), call("exec_command", "64")).await;
    let text = "has 64 tool calls that wait for an operator; wait until some are decided";
    refused(answer, Code::ResourceExhausted, Reason::LimitExceeded, text);
    cluster.resolve(&cluster.waiting().await[0], false).await;
    assert!(!cluster.ask(call("exec_command", "64")).await.approval_id.is_empty());
}

/// A question of the runner's about the thread at work, which an operator has to decide.
fn question(cluster: &TestCluster) -> ToolRequest {
    ToolRequest {
        request_id: String::from("q"),
        thread_id: cluster.worker.id.clone(),
        generation: cluster.attempt.generation,
        tool: String::from("command"),
        arguments_json: String::from(r#"{"cmd":"ls"}"#),
        runner_kind: String::from("process"),
        ..ToolRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecided_calls_of_a_runner_are_limited() {
    let mut cluster = TestCluster::start().await;
    let mut watch = cluster.tree.watch_after(0).await;
    let call = question(&cluster);
    for number in 0..=1_024 {
        let call = ToolRequest {
            request_id: number.to_string(),
            ..call.clone()
        };
        cluster.runner.say(ToSupervisor::ToolRequest(call)).await;
    }
    let refused = cluster.runner.decision().await;
    assert_eq!(
        (refused.request_id.as_str(), refused.allowed),
        ("1024", false),
        "{refused:?}"
    );
    assert_eq!(
        refused.reason,
        "1024 tool calls of this runner are not decided yet, which is the limit; call again later"
    );
    // The others wait for one and the same operator's word.
    assert_eq!(cluster.waiting().await, [watch.approval().await.approval_id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_call_fields_are_named() {
    let mut cluster = TestCluster::start().await;
    let enlarged = |enlarge: fn(&mut ToolRequest)| {
        let mut call = question(&cluster);
        enlarge(&mut call);
        call
    };
    let too_large = [
        (
            enlarged(|call| call.request_id = "x".repeat(129)),
            "request_id has 129 bytes; at most 128 are allowed",
        ),
        (
            enlarged(|call| call.tool = "x".repeat(257)),
            "tool has 257 bytes; at most 256 are allowed",
        ),
        (
            enlarged(|call| call.arguments_json = "x".repeat(65_537)),
            "arguments_json has 65537 bytes; at most 65536 are allowed",
        ),
        (
            enlarged(|call| call.runner_kind = "x".repeat(129)),
            "runner_kind has 129 bytes; at most 128 are allowed",
        ),
        (
            enlarged(|call| call.resolved_paths = vec![String::from("x"), "x".repeat(4_097)]),
            "a path of resolved_paths has 4097 bytes; at most 4096 are allowed",
        ),
        (
            enlarged(|call| call.resolved_paths = vec![String::from("x"); 65]),
            "65 resolved_paths; at most 64 are allowed",
        ),
    ];
    for (call, what) in too_large {
        let request_id = call.request_id.clone();
        let refused = cluster.runner.ask(call).await;
        assert_eq!((refused.request_id, refused.allowed), (request_id, false));
        let reason = format!("the tool call is too large to be decided: {what}");
        assert_eq!(refused.reason, reason);
    }
    assert!(cluster.waiting().await.is_empty(), "no approval is requested");
}

/// It names its tools as it likes, and must not fill the log with names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_kinds_of_denials_record_one_event() {
    let mut cluster = TestCluster::start().await;
    cluster.worker = cluster
        .tree
        .spawn_where("worker", |spawn| {
            spawn.permissions = Some(ToolCeiling {
                deny_list: vec![String::from("denied_*")],
                ..ToolCeiling::default()
            });
        })
        .await;
    cluster.runner.run(&cluster.worker.id).await;
    let mut watch = cluster.tree.watch_after(cluster.tree.head().await).await;
    for number in 0..100 {
        let call = call(&format!("denied_{number}"), "{}");
        assert!(!cluster.ask(call).await.allowed);
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
async fn repeated_tool_denials_record_one_event() {
    let cluster = TestCluster::start().await;
    let mut watch = cluster.tree.watch_after(cluster.tree.head().await).await;
    for _ in 0..100 {
        assert!(!cluster.ask(call("spawn_agent", "{}")).await.allowed);
    }
    let event = watch.event().await;
    match event.kind {
        Some(Kind::ToolDenied(denied)) => assert_eq!((denied.tool.as_str(), denied.count), ("spawn_agent", 1)),
        other => panic!("the first denial is recorded at once: {other:?}"),
    }
    assert_eq!(cluster.tree.head().await, event.sequence, "the others are counted");
}

/// Returns the error of a call that is not decided and that has half a second.
async fn undecided<T: Debug, F: Future<Output = Result<T, Status>>>(call: impl Fn(Duration) -> F) -> Status {
    /// The answer has a tenth of a second to arrive. A machine that is busy misses that now and then, but not always.
    const ATTEMPTS: usize = 10;
    for _ in 0..ATTEMPTS {
        let status = within("an answer", call(Duration::from_millis(500))).await.unwrap_err();
        if metadata_of(&status).contains_key("approval_id") {
            return status;
        }
        let is_late = matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled);
        assert!(is_late, "{status:?}");
    }
    panic!("no answer before the deadline");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_tool_call_awaits_approval_on_every_path() {
    let cluster = TestCluster::with("orchestrator", "close_*").await;
    let child = cluster.tree.spawn_under(&cluster.worker.id, "worker").await;
    let close = |reason: &str| CloseAgentRequest {
        thread_id: child.id.clone(),
        reason: reason.to_owned(),
        ..CloseAgentRequest::default()
    };
    let calling = |reason: &str| {
        let (mut agent, request) = (cluster.agent(), close(reason));
        tokio::spawn(async move { agent.close_agent(request).await })
    };
    // A call that it may not make at all causes no approval request.
    let root = CloseAgentRequest {
        thread_id: cluster.tree.root.clone(),
        ..CloseAgentRequest::default()
    };
    let text = "Not permitted to close agents outside your subtree.";
    outside_subtree(cluster.agent().close_agent(root).await, text);
    assert!(cluster.waiting().await.is_empty());

    let mut watch = cluster.tree.watch_after(cluster.tree.head().await).await;
    let status = undecided(|time| {
        let (mut agent, mut hurried) = (cluster.agent(), Request::new(close("done")));
        hurried.set_timeout(time);
        async move { agent.close_agent(hurried).await }
    })
    .await;
    let text = "the call waits for an operator's approval; nothing was done";
    let status = refused::<()>(Err(status), Code::DeadlineExceeded, Reason::DeadlineExceeded, text);
    let first = watch.approval().await;
    assert_eq!(metadata_of(&status)["approval_id"], first.approval_id);
    assert_eq!(
        first.subject,
        format!("Tool call: close_agent {{\"id\":\"{}\"}}", child.id)
    );
    assert!(cluster.waits_for_an_operator().await);
    assert_ne!(cluster.tree.status(&child.id).await, StatusKind::Shutdown);

    // A repeated call keeps waiting, and a different call needs a separate approval.
    let (same, other) = (calling("done"), calling("not needed"));
    let second = watch.approval().await;
    assert_eq!(
        cluster.waiting().await,
        [first.approval_id.as_str(), second.approval_id.as_str()]
    );
    cluster.resolve(&second.approval_id, false).await;
    let answer = within("an answer", other).await.unwrap();
    let text = "an operator denied the call: looked at";
    refused(answer, Code::PermissionDenied, Reason::ToolDenied, text);
    cluster.resolve(&first.approval_id, true).await;
    within("an answer", same).await.unwrap().unwrap();
    let closed = cluster.tree.thread(&child.id).await;
    assert!(has(&closed, ConditionKind::Closing) || kind(&closed) == StatusKind::Shutdown);

    // Operators need no approval.
    cluster.tree.client().close_agent(close("mine")).await.unwrap();
    assert!(cluster.waiting().await.is_empty());
}

/// The client that executes a root has no turns. Its repeated request counts as another call and needs an operator
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_turns_decision_is_used_by_one_call() {
    let cluster = TestCluster::with("orchestrator", "list_active_agents").await;
    let root = cluster.pair.with_token(&cluster.tree.root_token);
    let list = |time: Duration| {
        let (mut root, mut request) = (root.clone(), Request::new(ListActiveAgentsRequest::default()));
        request.set_timeout(time);
        async move { root.list_active_agents(request).await }
    };
    let mut watch = cluster.tree.watch_after(cluster.tree.head().await).await;

    let first_call = tokio::spawn(list(MAX_WAIT));
    let first = watch.approval().await;
    cluster.resolve(&first.approval_id, true).await;
    within("an answer", first_call).await.unwrap().unwrap();

    // No call waits when this one is decided: the next call gets the decision.
    let status = undecided(list).await;
    let second = watch.approval().await;
    assert_ne!(second.approval_id, first.approval_id);
    assert_eq!(metadata_of(&status)["approval_id"], second.approval_id);
    cluster.resolve(&second.approval_id, false).await;
    let answer = within("an answer", list(MAX_WAIT)).await;
    let text = "an operator denied the call: looked at";
    refused(answer, Code::PermissionDenied, Reason::ToolDenied, text);

    let status = undecided(list).await;
    let third = watch.approval().await;
    assert_eq!(metadata_of(&status)["approval_id"], third.approval_id);
    assert!(![first.approval_id, second.approval_id].contains(&third.approval_id));
}

/// One decision lets one call run, however many say the same at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_turns_grant_is_used_by_one_waiting_call() {
    const CALLS: usize = 8;
    let cluster = TestCluster::with("orchestrator", "list_active_agents").await;
    let root = cluster.pair.with_token(&cluster.tree.root_token);
    let mut watch = cluster.tree.watch_after(cluster.tree.head().await).await;
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let mut root = root.clone();
        calls.spawn(async move { root.list_active_agents(ListActiveAgentsRequest::default()).await });
    }
    let asked = watch.approval().await;
    cluster.resolve(&asked.approval_id, true).await;

    // A call that waited at the same time is rejected. A later call requests a new approval, and that rejects it.
    let refusing = async {
        loop {
            let asked = watch.approval().await;
            cluster.resolve(&asked.approval_id, false).await;
        }
    };
    let answered = async {
        let mut granted = 0;
        while let Some(answer) = calls.join_next().await {
            match answer.unwrap() {
                Ok(_) => granted += 1,
                Err(status) => assert_eq!(reason_of(&status), Some(Reason::ToolDenied), "{status:?}"),
            }
        }
        granted
    };
    let granted = tokio::select! {
        granted = within("all answers", answered) => granted,
        () = refusing => unreachable!("it never ends"),
    };
    assert_eq!(granted, 1);
}

/// A call that fails in any case needs no approval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_call_causes_no_approval() {
    let cluster = TestCluster::with("orchestrator", "send_input").await;
    let child = cluster.tree.spawn_under(&cluster.worker.id, "worker").await;
    let by_agent = cluster.tree.by(cluster.agent());
    let answer = by_agent.try_send(input(&child.id, " ")).await;
    let text = "Empty message can't be sent to an agent";
    refused(answer, Code::InvalidArgument, Reason::InvalidInput, text);
    assert!(cluster.waiting().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_see_the_tool_without_arguments() {
    let cluster = TestCluster::start().await;
    cluster.ask(call("exec_command", r#"{"cmd":"make s3cret"}"#)).await;
    let head = cluster.tree.head().await;
    for (client, seen) in [
        (
            cluster.tree.client(),
            r#"Tool call: exec_command {"cmd":"make s3cret"}"#,
        ),
        (cluster.pair.with_token(VIEWER), "Tool call: exec_command"),
    ] {
        let tree = cluster.tree.by(client);
        assert_eq!(tree.pending_approvals().await[0].subject, seen);

        let thread = Some(tree.thread(&cluster.worker.id).await);
        let (_, threads) = tree.watch().await.snapshot().await;
        let watched = threads.into_iter().find(|thread| thread.thread_id == cluster.worker.id);
        for thread in [thread, watched] {
            assert_eq!(thread.unwrap().conditions[0].reason, seen);
        }

        let events = tree.watch_after(0).await.up_to(head).await;
        let told: Vec<String> = events
            .into_iter()
            .filter_map(|event| match event.kind {
                Some(Kind::ApprovalRequested(requested)) => Some(requested.subject),
                Some(Kind::ConditionChanged(changed)) => Some(changed.reason),
                _ => None,
            })
            .collect();
        assert_eq!(told, [seen, seen]);
    }
}
