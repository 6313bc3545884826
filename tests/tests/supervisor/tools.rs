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

/// A session in which calls of some tools need an operator's approval, with a running thread.
struct TestSession {
    pair: Pair,
    tree: Tree,
    runner: Runner,
    worker: Spawned,
    attempt: Attempt,
}

impl TestSession {
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

    /// Creates a session in this mode. `enforces_workspace` says whether the operating system confines the program to
    /// the workspace.
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

    /// Returns the ids of the approvals that wait for an operator.
    async fn waiting(&self) -> Vec<String> {
        let approvals = self.tree.pending_approvals().await;
        for approval in &approvals {
            assert_eq!(approval.kind(), ApprovalKind::Tool);
            assert_eq!(approval.thread_id, self.worker.id);
        }
        approvals.into_iter().map(|approval| approval.approval_id).collect()
    }

    async fn resolve(&self, approval_id: &str, grant: bool) {
        self.tree.resolve(approval_id, grant, "checked").await;
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
    let test = TestSession::start().await;
    assert!(test.ask(call("read_file", "{}")).await.allowed);

    let make = call("exec_command", r#"{"cmd":"make"}"#);
    let asked = test.ask(make.clone()).await;
    assert!(!asked.allowed && !asked.approval_id.is_empty(), "{asked:?}");
    assert_eq!(
        test.ask(make.clone()).await,
        asked,
        "a repeated call causes no second approval"
    );
    assert_eq!(test.waiting().await, std::slice::from_ref(&asked.approval_id));
    assert!(test.waits_for_an_operator().await);

    test.resolve(&asked.approval_id, true).await;
    let granted = test.ask(make).await;
    assert!(granted.allowed, "{granted:?}");
    assert_eq!(granted.approval_id, asked.approval_id);
    assert!(!test.waits_for_an_operator().await);

    // The grant applies to that call, not to all calls of its tool.
    let other = test.ask(call("exec_command", r#"{"cmd":"rm -r ."}"#)).await;
    assert!(!other.allowed && other.approval_id != asked.approval_id, "{other:?}");
    test.resolve(&other.approval_id, false).await;
    let denied = test.ask(call("exec_command", r#"{"cmd":"rm -r ."}"#)).await;
    assert!(!denied.allowed);
    assert_eq!(denied.reason, "an operator denied the call: checked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_decision_completes_waiting_calls() {
    let mut test = TestSession::start().await;
    let patient = AuthorizeToolRequest {
        wait: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        ..call("exec_command", r#"{"cmd":"make"}"#)
    };
    let waiting = tokio::spawn(authorize(test.agent(), patient));
    test.runner.say(ToSupervisor::ToolRequest(question(&test))).await;
    let mut watch = test.tree.watch_after(0).await;
    for _ in 0..2 {
        let asked = watch.approval().await;
        test.resolve(&asked.approval_id, true).await;
    }
    assert!(waiting.await.unwrap().unwrap().allowed);
    let decision = test.runner.decision().await;
    assert!(decision.allowed, "{decision:?}");
    assert_eq!(decision.request_id, "q");
}

/// Returns the complete call that an approval covers, as an operator reads it.
async fn covered(test: &TestSession, approval: &Approval) -> Value {
    let digest = &approval.content.as_ref().expect("the call is content").digest;
    let bytes = read(&test.tree.client(), &test.tree.session, digest).await.unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_covers_one_digest_of_redacted_arguments() {
    let mut test = TestSession::start().await;
    let mut watch = test.tree.watch_after(test.tree.head().await).await;
    let ask = |id: &str, digit: &str| ToolRequest {
        request_id: id.to_owned(),
        arguments_json: String::from(r#"{"cmd":"<redacted>"}"#),
        arguments_sha256: digit.repeat(64),
        ..question(&test)
    };
    let (first, same, other) = (ask("first", "a"), ask("same", "a"), ask("other", "b"));
    test.runner.say(ToSupervisor::ToolRequest(first)).await;
    let asked = watch.approval().await;
    test.resolve(&asked.approval_id, true).await;
    assert!(test.runner.decision().await.allowed);
    assert!(test.runner.ask(same).await.allowed, "the same call is granted");

    test.runner.say(ToSupervisor::ToolRequest(other)).await;
    let second = watch.approval().await;
    assert_ne!(second.approval_id, asked.approval_id);
    assert_ne!(second.call_sha256, asked.call_sha256);
    test.resolve(&second.approval_id, false).await;
    assert!(!test.runner.decision().await.allowed);

    let malformed = ToolRequest {
        arguments_sha256: String::from("A"),
        ..question(&test)
    };
    let refused = test.runner.ask(malformed).await;
    assert_eq!(
        refused.reason,
        "arguments_sha256 must be 64 lower-case hexadecimal digits or empty"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_covers_one_set_of_paths() {
    let test = TestSession::with("worker", "apply_patch").await;
    let write = |path: &str| AuthorizeToolRequest {
        resolved_paths: vec![format!("{}/{path}", test.pair.project())],
        ..call("apply_patch", "{}")
    };
    let asked = test.ask(write("a")).await;
    test.resolve(&asked.approval_id, true).await;
    assert!(test.ask(write("a")).await.allowed);
    let other = test.ask(write("b")).await;
    assert!(!other.allowed && other.approval_id != asked.approval_id, "{other:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_sees_the_whole_call_and_its_threads() {
    let test = TestSession::start().await;
    let command = format!("echo {} && rm -r .", "x".repeat(10_000));
    let path = format!("{}/a", test.pair.project());
    let ask = AuthorizeToolRequest {
        resolved_paths: vec![path.clone()],
        ..call("exec_command", &json!({"cmd": command}).to_string())
    };
    test.ask(ask).await;
    let approvals = test.tree.pending_approvals().await;
    let [approval] = &approvals[..] else {
        panic!("expected one approval, not {approvals:?}");
    };
    assert_eq!(
        covered(&test, approval).await,
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
    assert_eq!(threads, [test.worker.id.as_str(), test.tree.root.as_str()]);
    assert_eq!(approval.threads[0].agent_type, "worker");

    let viewer = test.pair.with_token(VIEWER);
    let seen = test.tree.by(viewer.clone()).pending_approvals().await;
    assert_eq!(
        (&seen[0].call_sha256, &seen[0].content),
        (&approval.call_sha256, &approval.content)
    );
    let digest = &approval.content.as_ref().unwrap().digest;
    let answer = read(&viewer, &test.tree.session, digest).await;
    let text = "viewers read the contents of artifacts only; ask an operator for this one";
    not_permitted(answer, text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_too_large_to_show_is_denied_only_if_gated() {
    let mut test = TestSession::start().await;
    let large = ToolRequest {
        arguments_json: String::new(),
        arguments_sha256: "a".repeat(64),
        omitted_bytes: 100_000,
        ..question(&test)
    };
    let ungated = ToolRequest {
        tool: String::from("write_file"),
        resolved_paths: vec![format!("{}/a", test.pair.project())],
        ..large.clone()
    };
    let allowed = test.runner.ask(ungated).await;
    assert!(allowed.allowed, "{allowed:?}");
    let denied = test.runner.ask(large).await;
    assert!(
        !denied.allowed && denied.reason.contains("100000 bytes of arguments"),
        "{denied:?}"
    );
    assert!(test.waiting().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_without_paths_needs_a_confining_runner() {
    for (enforces_workspace, mode, allowed) in [
        (false, Mode::Implementation, false),
        (true, Mode::Implementation, true),
        (true, Mode::Planning, false),
    ] {
        let test = TestSession::confined(mode, enforces_workspace).await;
        let decided = test.ask(call("apply_patch", "{}")).await;
        assert_eq!(decided.allowed, allowed, "{enforces_workspace} {mode:?}: {decided:?}");
        if !enforces_workspace {
            assert!(decided.reason.contains("does not name the files"), "{decided:?}");
        }
    }
}

/// Checks commands in PLANNING with and without a runner that confines programs, and with and without a program that
/// sees only docs/.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_in_planning_need_a_view_of_docs_only() {
    for (enforces_workspace, docs_only, allowed) in [(true, true, true), (true, false, false), (false, true, false)] {
        let mut test = TestSession::confined(Mode::Planning, enforces_workspace).await;
        let request = ToolRequest {
            tool: String::from("exec_command"),
            runner_kind: String::from("test"),
            docs_only,
            ..question(&test)
        };
        let decision = test.runner.ask(request).await;
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
    let test = TestSession::of("worker", CreateSessionRequest::default(), hello).await;
    let request = AuthorizeToolRequest {
        runner_kind: String::from("claude"),
        ..call("apply_patch", "{}")
    };
    assert!(!test.ask(request.clone()).await.allowed);
    let request = AuthorizeToolRequest {
        thread_id: test.worker.id.clone(),
        session_id: test.tree.session.clone(),
        ..request
    };
    let of_operator = authorize(test.tree.client(), request).await.unwrap();
    assert!(of_operator.allowed, "{of_operator:?}");
}

/// Without a limit, each waiting call would cause a record when the agent is closed, and more calls could wait than
/// operators can decide.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_calls_of_an_agent_are_limited() {
    let test = TestSession::start().await;
    for number in 0..64 {
        let asked = test.ask(call("exec_command", &number.to_string())).await;
        assert!(!asked.approval_id.is_empty(), "{asked:?}");
    }
    let answer = authorize(test.agent(), call("exec_command", "64")).await;
    let text = "has 64 tool calls that wait for an operator; wait until some are decided";
    refused(answer, Code::ResourceExhausted, Reason::LimitExceeded, text);
    test.resolve(&test.waiting().await[0], false).await;
    assert!(!test.ask(call("exec_command", "64")).await.approval_id.is_empty());
}

/// Returns a request of the runner for a tool call of the running thread that an operator must decide.
fn question(test: &TestSession) -> ToolRequest {
    ToolRequest {
        request_id: String::from("q"),
        thread_id: test.worker.id.clone(),
        generation: test.attempt.generation,
        tool: String::from("command"),
        arguments_json: String::from(r#"{"cmd":"ls"}"#),
        runner_kind: String::from("process"),
        ..ToolRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecided_calls_of_a_runner_are_limited() {
    let mut test = TestSession::start().await;
    let mut watch = test.tree.watch_after(0).await;
    let call = question(&test);
    for number in 0..=1_024 {
        let call = ToolRequest {
            request_id: number.to_string(),
            ..call.clone()
        };
        test.runner.say(ToSupervisor::ToolRequest(call)).await;
    }
    let refused = test.runner.decision().await;
    assert_eq!(
        (refused.request_id.as_str(), refused.allowed),
        ("1024", false),
        "{refused:?}"
    );
    assert_eq!(
        refused.reason,
        "1024 tool calls of this runner are not decided yet, which is the limit; call again later"
    );
    // The other calls wait for the same approval.
    assert_eq!(test.waiting().await, [watch.approval().await.approval_id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_call_fields_are_named() {
    let mut test = TestSession::start().await;
    let enlarged = |enlarge: fn(&mut ToolRequest)| {
        let mut call = question(&test);
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
        let refused = test.runner.ask(call).await;
        assert_eq!((refused.request_id, refused.allowed), (request_id, false));
        let reason = format!("the tool call is too large to be decided: {what}");
        assert_eq!(refused.reason, reason);
    }
    assert!(test.waiting().await.is_empty(), "no approval is requested");
}

/// An agent can invent names of tools. It must not be able to fill the log with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_kinds_of_denials_record_one_event() {
    let mut test = TestSession::start().await;
    test.worker = test
        .tree
        .spawn_where("worker", |spawn| {
            spawn.permissions = Some(ToolCeiling {
                deny_list: vec![String::from("denied_*")],
                ..ToolCeiling::default()
            });
        })
        .await;
    test.runner.run(&test.worker.id).await;
    let mut watch = test.tree.watch_after(test.tree.head().await).await;
    for number in 0..100 {
        let call = call(&format!("denied_{number}"), "{}");
        assert!(!test.ask(call).await.allowed);
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
    let test = TestSession::start().await;
    let mut watch = test.tree.watch_after(test.tree.head().await).await;
    for _ in 0..100 {
        assert!(!test.ask(call("spawn_agent", "{}")).await.allowed);
    }
    let event = watch.event().await;
    match event.kind {
        Some(Kind::ToolDenied(denied)) => assert_eq!((denied.tool.as_str(), denied.count), ("spawn_agent", 1)),
        other => panic!("the first denial is recorded immediately: {other:?}"),
    }
    assert_eq!(test.tree.head().await, event.sequence, "the others are counted");
}

/// Makes an undecided call with a deadline of half a second and returns its error.
async fn undecided<T: Debug, F: Future<Output = Result<T, Status>>>(call: impl Fn(Duration) -> F) -> Status {
    /// Maximum number of attempts. The response has a tenth of a second to arrive, which a busy machine sometimes
    /// misses.
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
    let test = TestSession::with("orchestrator", "close_*").await;
    let child = test.tree.spawn_under(&test.worker.id, "worker").await;
    let close = |reason: &str| CloseAgentRequest {
        thread_id: child.id.clone(),
        reason: reason.to_owned(),
        ..CloseAgentRequest::default()
    };
    let calling = |reason: &str| {
        let (mut agent, request) = (test.agent(), close(reason));
        tokio::spawn(async move { agent.close_agent(request).await })
    };
    // A call that the agent may not make at all causes no approval request.
    let root = CloseAgentRequest {
        thread_id: test.tree.root.clone(),
        ..CloseAgentRequest::default()
    };
    let text = "Not permitted to close agents outside your subtree.";
    outside_subtree(test.agent().close_agent(root).await, text);
    assert!(test.waiting().await.is_empty());

    let mut watch = test.tree.watch_after(test.tree.head().await).await;
    let status = undecided(|time| {
        let (mut agent, mut hurried) = (test.agent(), Request::new(close("done")));
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
    assert!(test.waits_for_an_operator().await);
    assert_ne!(test.tree.status(&child.id).await, StatusKind::Shutdown);

    // A repeated call keeps waiting, and a different call needs a separate approval.
    let (same, other) = (calling("done"), calling("not needed"));
    let second = watch.approval().await;
    assert_eq!(
        test.waiting().await,
        [first.approval_id.as_str(), second.approval_id.as_str()]
    );
    test.resolve(&second.approval_id, false).await;
    let answer = within("an answer", other).await.unwrap();
    let text = "an operator denied the call: checked";
    refused(answer, Code::PermissionDenied, Reason::ToolDenied, text);
    test.resolve(&first.approval_id, true).await;
    within("an answer", same).await.unwrap().unwrap();
    let closed = test.tree.thread(&child.id).await;
    assert!(has(&closed, ConditionKind::Closing) || kind(&closed) == StatusKind::Shutdown);

    // Operators need no approval.
    test.tree.client().close_agent(close("mine")).await.unwrap();
    assert!(test.waiting().await.is_empty());
}

/// The client that executes a root has no turns, so its repeated request counts as a new call and needs a new approval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_turns_decision_is_used_by_one_call() {
    let test = TestSession::with("orchestrator", "list_active_agents").await;
    let root = test.pair.with_token(&test.tree.root_token);
    let list = |time: Duration| {
        let (mut root, mut request) = (root.clone(), Request::new(ListActiveAgentsRequest::default()));
        request.set_timeout(time);
        async move { root.list_active_agents(request).await }
    };
    let mut watch = test.tree.watch_after(test.tree.head().await).await;

    let first_call = tokio::spawn(list(MAX_WAIT));
    let first = watch.approval().await;
    test.resolve(&first.approval_id, true).await;
    within("an answer", first_call).await.unwrap().unwrap();

    // No call waits at the time of this decision, so the next call uses it.
    let status = undecided(list).await;
    let second = watch.approval().await;
    assert_ne!(second.approval_id, first.approval_id);
    assert_eq!(metadata_of(&status)["approval_id"], second.approval_id);
    test.resolve(&second.approval_id, false).await;
    let answer = within("an answer", list(MAX_WAIT)).await;
    let text = "an operator denied the call: checked";
    refused(answer, Code::PermissionDenied, Reason::ToolDenied, text);

    let status = undecided(list).await;
    let third = watch.approval().await;
    assert_eq!(metadata_of(&status)["approval_id"], third.approval_id);
    assert!(![first.approval_id, second.approval_id].contains(&third.approval_id));
}

/// One decision permits one call, even if several equal calls wait at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_turns_grant_is_used_by_one_waiting_call() {
    const CALLS: usize = 8;
    let test = TestSession::with("orchestrator", "list_active_agents").await;
    let root = test.pair.with_token(&test.tree.root_token);
    let mut watch = test.tree.watch_after(test.tree.head().await).await;
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let mut root = root.clone();
        calls.spawn(async move { root.list_active_agents(ListActiveAgentsRequest::default()).await });
    }
    let asked = watch.approval().await;
    test.resolve(&asked.approval_id, true).await;

    // A call that waited at the same time is rejected. A later call requests a new approval, which is denied.
    let refusing = async {
        loop {
            let asked = watch.approval().await;
            test.resolve(&asked.approval_id, false).await;
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
        () = refusing => unreachable!("the loop never ends"),
    };
    assert_eq!(granted, 1);
}

/// A call that fails in any case needs no approval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_call_causes_no_approval() {
    let test = TestSession::with("orchestrator", "send_input").await;
    let child = test.tree.spawn_under(&test.worker.id, "worker").await;
    let by_agent = test.tree.by(test.agent());
    let answer = by_agent.try_send(input(&child.id, " ")).await;
    let text = "Empty message can't be sent to an agent";
    refused(answer, Code::InvalidArgument, Reason::InvalidInput, text);
    assert!(test.waiting().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_see_the_tool_without_arguments() {
    let test = TestSession::start().await;
    test.ask(call("exec_command", r#"{"cmd":"make s3cret"}"#)).await;
    let head = test.tree.head().await;
    for (client, seen) in [
        (test.tree.client(), r#"Tool call: exec_command {"cmd":"make s3cret"}"#),
        (test.pair.with_token(VIEWER), "Tool call: exec_command"),
    ] {
        let tree = test.tree.by(client);
        assert_eq!(tree.pending_approvals().await[0].subject, seen);

        let thread = Some(tree.thread(&test.worker.id).await);
        let (_, threads) = tree.watch().await.snapshot().await;
        let watched = threads.into_iter().find(|thread| thread.thread_id == test.worker.id);
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
