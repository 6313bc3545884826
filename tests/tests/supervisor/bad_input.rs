//! Invalid input to every method. Each error has the right code, a stable reason and a text that says what is wrong and
//! what to do, and the service still responds after it.

use bytes::Bytes;
use prost::Message as _;
use prost_types::{Duration, FileDescriptorSet};
use svc_kit::encoded::EncodedCodec;
use tokio::sync::mpsc;
use tokio_stream::{iter, wrappers::ReceiverStream};
use tonic::{Code, Request, Status, client::Grpc, codegen::http::uri::PathAndQuery};
use troupe_proto::{
    FILE_DESCRIPTOR_SET, MAX_MESSAGE_BYTES, MAX_WORKSPACE_MESSAGE_BYTES,
    fault::metadata_of,
    reason::Reason,
    registry::v1::{ListAgentsRequest, ListDiagnosticsRequest, ResolveSpawnRequest},
    supervisor::v1::{
        ArtifactRef, AttachRequest, AttachResponse, AuthorizeToolRequest, Budget, CloseAgentRequest,
        CloseSessionRequest, CreateEdgeRequest, CreateGroupRequest, CreateSessionRequest, DeleteSessionRequest,
        DescribeToolsRequest, GetContentRequest, GetGroupRequest, GetPromptRequest, GetQuotaRequest, GetSessionRequest,
        GetThreadRequest, GroupItem, GroupJoin, InputItem, InterruptAgentRequest, Limits, ListActiveAgentsRequest,
        ListApprovalsRequest, ListArtifactsRequest, ListPromptsRequest, ListSessionsRequest,
        ListSpawnableAgentsRequest, ResolveApprovalRequest, ResumeAgentRequest, RunnerHello, SendHandoffRequest,
        SendInputRequest, SetThreadNoteRequest, SpawnAgentRequest, ToolCeiling, UpdateSessionRequest,
        UpdateThreadBudgetRequest, WaitAgentsRequest, WatchSessionsRequest, WatchThreadsRequest, Webhook,
        attach_request::Message, input_item::Item,
    },
};
use troupe_tests::{
    UNKNOWN, accepted, client,
    pair::{OPERATOR, Pair, RUNNER, SERVICE, VIEWER},
    refusal::{invalid, not_permitted, refused},
    runner::hello,
    tree::{Spawned, Tree},
    within,
};

/// A pair with sessions and threads for the invalid requests.
struct TestSession {
    pair: Pair,
    tree: Tree,
    worker: Spawned,
    closed: String,
}

impl TestSession {
    async fn start() -> Self {
        let pair = Pair::start().await;
        let tree = pair.tree().await;
        let worker = tree.spawn("worker").await;
        let closed = tree.spawn("worker").await.id;
        tree.close(&closed).await;
        Self {
            pair,
            tree,
            worker,
            closed,
        }
    }

    fn worker(&self) -> String {
        self.worker.id.clone()
    }

    fn closed(&self) -> String {
        self.closed.clone()
    }

    fn is_closed(&self) -> String {
        format!("agent with id {} is closed", self.closed)
    }
}

/// Makes each call with the given fields and otherwise the fields of the base request. Checks the code, the reason and
/// the text of the error, and that the session can be read after it. Code and reason default to INVALID_ARGUMENT.
macro_rules! refuses {
    ($test:expr, $client:expr; $($method:ident($request:ident, $base:expr):
        $({ $($field:ident: $value:expr),* } $($code:ident $reason:ident)? => $text:expr;)+
    )+) => {$($(
        // On the heap, because all cases together would overflow the stack of the test.
        Box::pin(async {
            #[allow(clippy::needless_update, reason = "some requests have no other fields")]
            let request = $request { $($field: $value,)* ..$base };
            let answer = within("an answer", $client.clone().$method(request)).await;
            let (code, reason) = refusal!($($code $reason)?);
            refused(answer, code, reason, $text);
            $test.tree.head().await;
        })
        .await;
    )+)+};
}

macro_rules! refusal {
    () => {
        (Code::InvalidArgument, Reason::InvalidArgument)
    };
    ($code:ident $reason:ident) => {
        (Code::$code, Reason::$reason)
    };
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn long(bytes: usize) -> String {
    "x".repeat(bytes)
}

fn negative() -> Budget {
    let span = Duration { seconds: -1, nanos: 0 };
    Budget {
        wall_time: Some(span),
        ..Budget::default()
    }
}

fn piece(text: &str) -> InputItem {
    InputItem {
        item: Some(Item::Text(text.to_owned())),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_session_requests_are_rejected() {
    let test = TestSession::start().await;
    let limits = |max_depth, max_threads, max_total_threads| {
        Some(Limits {
            max_depth,
            max_threads,
            max_total_threads,
            ..Limits::default()
        })
    };
    let time = |seconds, nanos| Some(Duration { seconds, nanos });
    let ceiling = ToolCeiling {
        allow_list: vec![String::new()],
        ..ToolCeiling::default()
    };
    let session = || test.tree.session.clone();
    let update = || UpdateSessionRequest {
        session_id: session(),
        ..UpdateSessionRequest::default()
    };
    let webhook = |url: &str, secret| Webhook {
        url: url.to_owned(),
        secret: long(secret),
        ..Webhook::default()
    };
    let hooked = || UpdateSessionRequest {
        replace_webhooks: true,
        ..update()
    };
    refuses! { test, test.tree.client();
        create_session(CreateSessionRequest, Default::default()):
            { cwd: "a/b".into() } => "cwd \"a/b\" is relative; give an absolute path";
            { cwd: "/a/../b".into() } => "cwd \"/a/../b\" goes up by \"..\"; give the path that it leads to";
            { cwd: format!("/{}", long(4096)) } => "cwd has 4097 bytes; at most 4096 are allowed";
            { request_id: long(129) } => "request_id has 129 bytes; at most 128 are allowed";
            { limits: limits(Some(99), None, None) } => "limits.max_depth 99 is more than this service allows (2)";
            { limits: limits(None, Some(0), None) } => "limits.max_threads must be at least 1";
            { limits: limits(None, None, Some(10_001)) }
                => "limits.max_total_threads 10001 is more than this service allows (10000)";
            { sandbox: 77 } => "sandbox";
            { slot_release: -1 } => "slot_release";
            { message: text(" \n") } InvalidArgument InvalidInput => "Empty message can't be sent to an agent";
            { message: text("x"), items: vec![piece("x")] } InvalidArgument InvalidInput
                => "Provide either message or items, but not both";
            { agent_type: "nobody".into() } NotFound TemplateNotFound => "missing agent template: nobody";
            { agent_type: "worker".into(), role_template: "orchestrator".into() }
                => "give agent_type or role_template, not both";
            { agent_name: "strict".into() } InvalidArgument InvalidAgentName
                => "agent_name requires a non-default agent_type";
            { reasoning_effort: "extreme".into(), model: "m".into() } InvalidArgument UnsupportedEffort
                => "reasoning_effort \"extreme\" is not supported for model \"m\"";
            { labels: [(String::new(), "x".into())].into() } => "a label has an empty key";
            { labels: [(String::from("team"), "a\nb".into())].into() } => "labels has control characters; remove them";
            { runner_labels: [(String::from("zone\r"), "a".into())].into() }
                => "runner_labels has control characters; remove them";
            { tool_ceiling: Some(ceiling) } => "tool_ceiling";
            { budget: Some(negative()) } => "budget.wall_time must not be negative";
            { edge_management: 77 } => "edge_management";
            { orchestrators: vec!["x".into(); 65] } => "65 orchestrators; at most 64 are allowed";
            { orchestrators: vec![long(129)] } => "orchestrators has 129 bytes; at most 128 are allowed";
            { orchestrators: vec![" ".into()] } => "orchestrators has an empty name; give the name of a graph template";
            { retention: time(-1, 0) } => "retention must not be negative";
            { approval_timeout: time(-1, 0) } => "approval_timeout must not be negative";
            { approval_timeout: time(0, 1) } => "approval_timeout 1ns is not between 1s and 604800s; 0 means no limit";
            { approval_timeout: time(604_801, 0) }
                => "approval_timeout 604801s is not between 1s and 604800s; 0 means no limit";
        update_session(UpdateSessionRequest, update()):
            { edge_management: Some(0) } => "edge_management";
            { orchestrators: vec!["lead".into()] } => "orchestrators are given without replace_orchestrators";
            { mode: Some(0) } => "mode";
            { limits: limits(None, Some(99), None) } => "limits.max_threads 99 is more than this service allows (12)";
            { budget: Some(negative()) } => "budget.wall_time must not be negative";
            { webhooks: vec![webhook("https://h", 16)] } => "webhooks are given without replace_webhooks";
        update_session(UpdateSessionRequest, Default::default()):
            {} => "session_id is required";
        update_session(UpdateSessionRequest, hooked()):
            { webhooks: vec![webhook("https://h", 16); 9] } => "9 webhooks; at most 8 are allowed";
            { webhooks: vec![webhook("ftp://h", 16)] }
                => "webhooks.url \"ftp://h\": its scheme is neither http nor https";
            { webhooks: vec![webhook("https://h", 15)] } => "webhooks.secret has 15 bytes; give 16 to 256";
        get_session(GetSessionRequest, Default::default()):
            {} => "session_id is required";
            { session_id: "x".into() } => "invalid session_id \"x\"; expected a UUID of 36 characters";
            { session_id: UNKNOWN.replace('-', "") } => "expected a UUID of 36 characters";
            { session_id: UNKNOWN.into() } NotFound SessionNotFound => &format!("session with id {UNKNOWN} not found");
        list_sessions(ListSessionsRequest, Default::default()):
            { page_size: -1 } => "page_size -1 is negative";
            { page_token: "1-1-0".into() } => "page_token is not from the previous page of this listing";
        close_session(CloseSessionRequest, Default::default()):
            {} => "session_id is required";
            { session_id: UNKNOWN.into() } NotFound SessionNotFound => UNKNOWN;
            { session_id: session(), deadline: time(-1, 0) } => "deadline must not be negative";
        watch_sessions(WatchSessionsRequest, Default::default()):
            { labels: [(String::new(), "x".into())].into() } => "a label has an empty key";
        delete_session(DeleteSessionRequest, Default::default()):
            {} => "session_id is required";
            { session_id: UNKNOWN.into() } NotFound SessionNotFound => UNKNOWN;
            { session_id: session() } FailedPrecondition IllegalTransition
                => "is open; close it with CloseSession before it is deleted";
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_spawn_requests_are_rejected() {
    let test = TestSession::start().await;
    let spawn = || test.tree.request("worker");
    refuses! { test, test.tree.client();
        spawn_agent(SpawnAgentRequest, spawn()):
            { session_id: String::new() } => "give session_id or thread_id";
            { parent_thread_id: "x".into() } => "invalid parent_thread_id \"x\"";
            { parent_thread_id: UNKNOWN.into() } NotFound ThreadNotFound
                => &format!("agent with id {UNKNOWN} not found");
            { parent_thread_id: test.closed() } FailedPrecondition ThreadClosed => &test.is_closed();
            { message: None } InvalidArgument InvalidInput => "Provide one of: message or items";
            { items: vec![piece("x")] } InvalidArgument InvalidInput => "Provide either message or items, but not both";
            { message: None, items: vec![piece(" "), InputItem::default()] } InvalidArgument InvalidInput
                => "Empty message can't be sent to an agent";
            { message: None, items: vec![piece("x"); 65] } => "65 items; at most 64 are allowed";
            { message: text(&long(1_100_000)) } => "at most 1048576 are allowed";
            { request_id: long(129) } => "request_id has 129 bytes; at most 128 are allowed";
            { agent_type: "Not a name".into() } InvalidArgument InvalidAgentType
                => "invalid agent_type \"not a name\"; expected snake_case or kebab-case";
            { agent_type: "nobody".into() } NotFound TemplateNotFound => "missing agent template: nobody";
            { agent_name: "nobody".into() } InvalidArgument InvalidAgentName
                => "unknown agent_name \"nobody\" for agent_type \"worker\"";
            { reasoning_effort: "extreme".into() } InvalidArgument UnsupportedEffort
                => "reasoning_effort \"extreme\" is not supported for model";
            { expected_digest: "0".repeat(64) } FailedPrecondition DigestMismatch => "template \"worker\" has digest";
            { expected_digest: "0".into() } => "expected_digest is not a SHA-256";
            { label: long(129) } => "label has 129 bytes; at most 128 are allowed";
            { label: "\u{1b}[2J".into() } => "label has control characters; remove them";
            { label: "Docs\n## Task".into() } => "label has control characters; remove them";
            { alias: "sco\tut".into() } => "alias has control characters; remove them";
            { alias: long(65) } => "alias has 65 bytes; at most 64 are allowed";
            { alias: "scout\u{200b}".into() }
                => "alias \"scout\\u{200b}\" has the character '\\u{200b}'; use the letters";
            { alias: "sc\u{43e}ut".into() } => "has the character";
            { alias: "the scout".into() } => "has the character ' '";
            { alias: "root".into() } => "alias \"root\" is reserved, as are root, parent, self; choose another";
            { alias: " Parent ".into() } => "alias \"Parent\" is reserved";
            { alias: "SELF".into() } => "alias \"SELF\" is reserved";
            { alias: test.worker() } => "has the form of an id; choose another";
            { alias: test.worker().to_uppercase().replace('-', "") } => "has the form of an id; choose another";
            { thread_note: text(&long(1_025)) } => "thread_note has 1025 bytes; at most 1024 are allowed";
            { working_directory: "here".into() } => "working_directory \"here\" is relative; give an absolute path";
            { working_directory: format!("{}/..", test.pair.project()) }
                => "goes up by \"..\"; give the path that it leads to";
            { working_directory: test.pair.elsewhere() } PermissionDenied CwdOutsideRoots
                => "lies outside the workspace roots";
            { working_directory: format!("{}/none", test.pair.project()) } NotFound CwdNotFound
                => "is not an existing directory";
            { on_limit: 9 } => "on_limit";
            { budget: Some(negative()) } => "budget.wall_time must not be negative";
            { close_policy: 9 } => "close_policy";
            { role_template: "planner".into() } => "give agent_type or role_template, not both";
            { role_template: "nobody".into(), agent_type: String::new() } NotFound TemplateNotFound
                => "missing agent template: nobody";
            { capabilities: vec![String::new(); 65] } => "65 capabilities; at most 64 are allowed";
            { capabilities: vec![long(129)] } => "capabilities has 129 bytes; at most 128 are allowed";
            { capabilities: vec!["delegate".into()] }
                => "capability \"delegate\" is not declared by \"worker\"; it declares: none";
    }
    test.tree.spawn("worker").await;
    // White space at the ends of a name is removed.
    let request = SpawnAgentRequest {
        label: String::from(" Docs\n"),
        alias: String::from("scout\n"),
        ..spawn()
    };
    let spawned = test.tree.spawn_with(request).await.thread;
    assert_eq!((spawned.label.as_str(), spawned.alias.as_str()), ("Docs", "scout"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_thread_requests_are_rejected() {
    let test = TestSession::start().await;
    let (worker, closed) = (|| test.worker(), || test.closed());
    refuses! { test, test.tree.client();
        send_input(SendInputRequest, Default::default()):
            { message: text("x") } => "thread_id is required";
            { thread_id: worker() } InvalidArgument InvalidInput => "Provide one of: message or items";
            { thread_id: worker(), message: text("") } InvalidArgument InvalidInput
                => "Empty message can't be sent to an agent";
            { thread_id: worker(), message: text(&long(1_100_000)) } => "at most 1048576 are allowed";
            { thread_id: UNKNOWN.into(), message: text("x") } NotFound ThreadNotFound
                => &format!("agent with id {UNKNOWN} not found");
            { thread_id: test.tree.root.clone(), message: text("x") } FailedPrecondition IllegalTransition
                => "its client executes it itself";
        interrupt_agent(InterruptAgentRequest, Default::default()):
            {} => "thread_id is required";
            { thread_id: worker(), reason: long(257) } => "reason has 257 bytes; at most 256 are allowed";
            { thread_id: UNKNOWN.into() } NotFound ThreadNotFound => UNKNOWN;
        wait_agents(WaitAgentsRequest, Default::default()):
            {} => "ids must be non-empty";
            { thread_ids: vec!["x".into()] } => "invalid thread_ids \"x\"";
            { thread_ids: vec![worker(); 1_001] } => "at most 1000 ids are allowed";
            { thread_ids: vec![worker()], mode: 3 } => "mode 3 is unknown";
            { thread_ids: vec![worker()], timeout: Some(Duration::default()) }
                => "timeout_ms must be greater than zero";
        close_agent(CloseAgentRequest, Default::default()):
            {} => "thread_id is required";
            { thread_id: "x".into() } => "invalid thread_id \"x\"";
            { thread_id: worker(), deadline: Some(Duration { seconds: 31, nanos: 0 }) } => "deadline is more than 30 s";
            { thread_id: worker(), close_policy: 9 } => "close_policy";
        update_thread_budget(UpdateThreadBudgetRequest, Default::default()):
            {} => "thread_id is required";
            { thread_id: worker() } => "budget is required; an empty one is without bound";
            { thread_id: worker(), budget: Some(negative()) } => "budget.wall_time must not be negative";
            { thread_id: closed(), budget: Some(Budget::default()) } FailedPrecondition ThreadClosed
                => &test.is_closed();
        resume_agent(ResumeAgentRequest, Default::default()):
            {} => "thread_id is required";
            { thread_id: UNKNOWN.into() } NotFound ThreadNotFound => UNKNOWN;
            { thread_id: closed(), on_limit: 9 } => "on_limit: OnLimit has no value 9";
        set_thread_note(SetThreadNoteRequest, Default::default()):
            { thread_id: worker(), thread_note: long(1_025) } => "thread_note has 1025 bytes; at most 1024 are allowed";
            { thread_id: worker(), thread_note: "\u{7}".into() } => "thread_note has control characters; remove them";
    }

    // A closed session has no thread that could be opened again.
    let tree = &test.tree;
    tree.close(&tree.root).await;
    refuses! { test, tree.client();
        resume_agent(ResumeAgentRequest, Default::default()):
            { thread_id: tree.root.clone() } FailedPrecondition SessionClosed => "the session is closed";
            { thread_id: closed() } FailedPrecondition ThreadClosed => "is closed";
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_read_requests_are_rejected() {
    let test = TestSession::start().await;
    let (session, worker) = (|| test.tree.session.clone(), || test.worker());
    refuses! { test, test.tree.client();
        get_thread(GetThreadRequest, Default::default()):
            {} => "thread_id is required";
            { thread_id: UNKNOWN.into() } NotFound ThreadNotFound => &format!("agent with id {UNKNOWN} not found");
            { session_id: UNKNOWN.into(), thread_id: worker() } NotFound SessionNotFound => UNKNOWN;
        list_active_agents(ListActiveAgentsRequest, Default::default()):
            {} => "give session_id or thread_id";
            { session_id: session(), scope: 9 } => "scope";
            { session_id: session(), statuses: vec![0] } => "statuses";
            { session_id: session(), page_size: -1 } => "page_size -1 is negative";
            { session_id: session(), page_token: long(200) } => "start again without it";
        authorize_tool(AuthorizeToolRequest, Default::default()):
            { thread_id: worker() } => "tool is required";
            { thread_id: worker(), tool: "x".into(), arguments_json: "{\"cmd\": ls}".into() }
                => "arguments_json is not valid JSON: expected value at line 1 column 9";
            { thread_id: worker(), tool: "x".into(), arguments_json: "{} {}".into() }
                => "arguments_json is not valid JSON: trailing characters";
            { thread_id: UNKNOWN.into(), tool: "x".into() } NotFound ThreadNotFound => UNKNOWN;
        describe_tools(DescribeToolsRequest, Default::default()):
            {} => "give session_id or thread_id";
        list_spawnable_agents(ListSpawnableAgentsRequest, Default::default()):
            { session_id: session(), page_size: -1 } => "page_size -1 is negative";
        list_prompts(ListPromptsRequest, Default::default()):
            {} => "give session_id or thread_id";
            { thread_id: worker(), page_size: -1 } => "page_size -1 is negative";
        get_prompt(GetPromptRequest, Default::default()):
            { thread_id: worker() } => "turn is required; turns count from 1";
            { thread_id: worker(), turn: 1 } NotFound NotFound => "prompt of turn 1 not found";
        list_artifacts(ListArtifactsRequest, Default::default()):
            {} => "give session_id or thread_id";
            { thread_id: "x".into() } => "invalid thread_id \"x\"";
            { session_id: session(), page_token: "x".into() } => "start again without it";
        get_content(GetContentRequest, Default::default()):
            { session_id: session(), digest: "x".into() } => "invalid digest \"x\"; expected a SHA-256";
            { digest: "0".repeat(64) } => "session_id is required";
            { session_id: session(), digest: "0".repeat(64) } NotFound NotFound => "content 0000";
        get_quota(GetQuotaRequest, Default::default()):
            {} => "give session_id or thread_id";
            { thread_id: "x".into() } => "invalid thread_id \"x\"";
            { thread_id: UNKNOWN.into() } NotFound ThreadNotFound => UNKNOWN;
        watch_threads(WatchThreadsRequest, Default::default()):
            {} => "give session_id or thread_id";
            { session_id: session(), kinds: vec![99] } => "99 is not a kind of event";
            { thread_id: UNKNOWN.into() } NotFound ThreadNotFound => UNKNOWN;
    }

    // WaitAgents is the only read that returns a status for missing threads too.
    for thread_ids in [
        vec![test.closed(), UNKNOWN.to_owned()],
        vec![UNKNOWN.to_owned(), test.closed()],
    ] {
        let request = WaitAgentsRequest {
            thread_ids,
            ..WaitAgentsRequest::default()
        };
        let answer = accepted("an answer", test.tree.client().wait_agents(request)).await;
        assert_eq!(answer.not_found_ids, [UNKNOWN]);
        assert_eq!(answer.statuses.len(), 1, "{answer:?}");
        assert_eq!(answer.statuses[0].thread_id, test.closed());
    }
}

/// `registry-svc/tests/registry` has the other errors of the registry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_registry_requests_are_rejected() {
    let test = TestSession::start().await;
    let worker = || ResolveSpawnRequest {
        agent_type: text("worker"),
        ..ResolveSpawnRequest::default()
    };
    refuses! { test, test.pair.registry(OPERATOR);
        list_agents(ListAgentsRequest, Default::default()):
            { namespace: 9 } => "namespace 9 is unknown";
        resolve_spawn(ResolveSpawnRequest, worker()):
            { expected_digest: text("0") } => "expected_digest is not a SHA-256; expected 64 hexadecimal digits";
            { mode: 9 } => "mode 9 is unknown";
        list_diagnostics(ListDiagnosticsRequest, Default::default()):
            { cwd: "a/b".into() } => "cwd \"a/b\" is relative; give an absolute path";
            { page_size: -1 } => "page_size is -1; it may not be negative";
    }
}

/// Attaches a runner and returns the error.
async fn attach(pair: &Pair, token: &str, messages: Vec<AttachRequest>) -> Result<(), Status> {
    let attached = within("an answer to hello", pair.runners(token).attach(iter(messages))).await;
    attached.map(|_| ())
}

fn says(message: Message) -> Vec<AttachRequest> {
    vec![AttachRequest { message: Some(message) }]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_runner_messages_are_rejected() {
    let test = TestSession::start().await;
    let first = "the first message of a runner must be hello";
    let name = "runner_id must have 1 to 128 bytes";
    let with = |change: fn(&mut RunnerHello)| {
        let mut hello = hello("r");
        change(&mut hello);
        hello
    };
    let hellos = [
        (hello(""), name),
        (hello(&long(129)), name),
        (with(|hello| hello.kinds.clear()), "a runner must offer 1 to 16 kinds"),
        (
            with(|hello| hello.kinds[0].kind = long(129)),
            "a kind must have at most 128 bytes without control characters",
        ),
        (
            with(|hello| hello.labels = [(String::from("zone"), String::from("a\nb"))].into()),
            "values of at most 128, without control characters",
        ),
        (
            with(|hello| hello.session_id = String::from("x")),
            "session_id must be a UUID or empty",
        ),
    ];
    let mut bad = vec![
        (Vec::new(), first),
        (says(Message::Heartbeat(Default::default())), first),
    ];
    bad.extend(hellos.map(|(hello, text)| (says(Message::Hello(hello)), text)));
    for (messages, text) in bad {
        let answer = attach(&test.pair, RUNNER, messages).await;
        invalid(answer, text);
        test.tree.head().await;
    }
    let greeting = || says(Message::Hello(hello("r")));
    for token in [VIEWER, SERVICE, &test.worker.token] {
        let answer = attach(&test.pair, token, greeting()).await;
        not_permitted(answer, "may not call");
    }
    attach(&test.pair, RUNNER, greeting()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthorized_calls_are_rejected() {
    let test = TestSession::start().await;
    let TestSession { pair, tree, worker, .. } = &test;
    let session = || GetSessionRequest {
        session_id: tree.session.clone(),
    };
    refuses! { test, pair.stranger();
        get_session(GetSessionRequest, session()):
            {} Unauthenticated Unauthenticated => "send \"authorization: Bearer TOKEN\"";
        create_session(CreateSessionRequest, Default::default()):
            {} Unauthenticated Unauthenticated => "missing, malformed or stale";
    }
    let forged = format!("{}x", worker.token);
    for token in ["nonsense", &forged] {
        refuses! { test, pair.with_token(token);
            get_session(GetSessionRequest, session()):
                {} Unauthenticated Unauthenticated => "missing, malformed or stale";
        }
    }
    refuses! { test, pair.with_token(VIEWER);
        spawn_agent(SpawnAgentRequest, tree.request("worker")):
            {} PermissionDenied NotPermitted => "a caller of kind operator (viewer) may not call";
        create_session(CreateSessionRequest, Default::default()):
            {} PermissionDenied NotPermitted => "operator (viewer)";
        close_agent(CloseAgentRequest, Default::default()):
            { thread_id: worker.id.clone() } PermissionDenied NotPermitted => "operator (viewer)";
    }
    pair.with_token(VIEWER).get_session(session()).await.unwrap();
    for token in [RUNNER, SERVICE] {
        refuses! { test, pair.with_token(token);
            get_session(GetSessionRequest, session()):
                {} PermissionDenied NotPermitted => "a caller of kind";
            spawn_agent(SpawnAgentRequest, tree.request("worker")):
                {} PermissionDenied NotPermitted => "may not call";
        }
    }
    // The registry accepts operators and the supervisor, but no runners and threads.
    refuses! { test, pair.registry(RUNNER);
        list_agents(ListAgentsRequest, Default::default()):
            {} PermissionDenied NotPermitted => "a caller of kind runner";
    }
    pair.registry(SERVICE)
        .list_agents(ListAgentsRequest::default())
        .await
        .unwrap();
}

/// Returns the full paths of all methods of both services.
fn methods() -> Vec<String> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let mut paths = Vec::new();
    for file in &set.file {
        for service in &file.service {
            let methods = service.method.iter();
            paths.extend(methods.map(|method| format!("/{}.{}/{}", file.package(), service.name(), method.name())));
        }
    }
    paths
}

/// Calls a method with these bytes as its message.
async fn send_bytes(pair: &Pair, path: &str, bytes: Vec<u8>) -> Status {
    let (at, token) = match path {
        path if path.starts_with("/troupe.registry.") => (pair.registry_at(), OPERATOR),
        path if path.ends_with("/Attach") => (pair.supervisor_at(), RUNNER),
        _ => (pair.supervisor_at(), OPERATOR),
    };
    let mut client = Grpc::new(client::endpoint(at).connect().await.unwrap());
    client.ready().await.unwrap();
    let mut request = Request::new(Bytes::from(bytes));
    let bearer = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    let path = PathAndQuery::try_from(path).unwrap();
    let answer = client.unary(request, path, EncodedCodec::<()>::default());
    within("a refusal", answer).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecodable_messages_are_invalid_arguments_everywhere() {
    let pair = Pair::start().await;
    for path in methods() {
        // An incomplete varint.
        let status = send_bytes(&pair, &path, vec![0xff]).await;
        let refusal = refused::<()>(
            Err(status),
            Code::InvalidArgument,
            Reason::MalformedMessage,
            "failed to decode",
        );
        assert_eq!(metadata_of(&refusal)["method"], path);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecodable_message_ends_the_stream_of_its_runner() {
    let pair = Pair::start().await;
    let mut client = Grpc::new(client::endpoint(pair.supervisor_at()).connect().await.unwrap());
    client.ready().await.unwrap();
    let greeting = says(Message::Hello(hello("r"))).remove(0).encode_to_vec();
    let (outgoing, messages) = mpsc::channel(2);
    outgoing.send(Bytes::from(greeting)).await.unwrap();
    let mut request = Request::new(ReceiverStream::new(messages));
    let bearer = format!("Bearer {RUNNER}").parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    let path = PathAndQuery::from_static("/troupe.supervisor.v1.ThreadRunnerService/Attach");
    let answer = client.streaming(request, path, EncodedCodec::<AttachResponse>::default());
    let mut answers = within("an answer to hello", answer).await.unwrap().into_inner();
    within("welcome", answers.message()).await.unwrap().unwrap();

    outgoing.send(Bytes::from_static(&[0xff])).await.unwrap();
    let end = within("the end", answers.message()).await;
    refused(end, Code::InvalidArgument, Reason::MalformedMessage, "failed to decode");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_over_the_bound_are_rejected_everywhere() {
    let test = TestSession::start().await;
    let head = test.tree.head().await;
    for path in methods() {
        let has_bundle = path.ends_with("/PutWorkspace") || path.ends_with("/GetWorkspace");
        let bound = if has_bundle {
            MAX_WORKSPACE_MESSAGE_BYTES
        } else {
            MAX_MESSAGE_BYTES
        };
        let status = send_bytes(&test.pair, &path, vec![0; bound + 1]).await;
        refused::<()>(
            Err(status),
            Code::ResourceExhausted,
            Reason::MessageTooLarge,
            &format!("has {} bytes; at most {bound} are allowed", bound + 1),
        );
    }
    assert_eq!(test.tree.head().await, head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_approval_requests_are_rejected() {
    let test = TestSession::start().await;
    let session_id = || test.tree.session.clone();
    let resolve = || ResolveApprovalRequest {
        session_id: session_id(),
        approval_id: UNKNOWN.into(),
        ..Default::default()
    };
    refuses! { test, test.tree.client();
        list_approvals(ListApprovalsRequest, Default::default()):
            {} => "give session_id or thread_id";
            { session_id: UNKNOWN.into() } NotFound SessionNotFound => "not found";
            { session_id: session_id(), page_size: -1 } => "page_size -1 is negative";
            { session_id: session_id(), page_token: "x".into() } => "page_token is not from the previous page";
        resolve_approval(ResolveApprovalRequest, resolve()):
            { session_id: String::new() } => "give session_id or thread_id";
            { approval_id: String::new() } => "approval_id is required";
            { approval_id: "x".into() } => "invalid approval_id \"x\"";
            { reason: long(257) } => "reason has 257 bytes; at most 256 are allowed";
            {} NotFound NotFound => &format!("approval {UNKNOWN} not found");
    }
}

/// The texts of a handoff are also checked in `hostile_child::invalid_handoff_does_not_reveal_threads`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_graph_requests_are_rejected() {
    let test = TestSession::start().await;
    let head = test.tree.head().await;
    let handoff = || SendHandoffRequest {
        from_thread_id: test.worker(),
        to_thread_id: test.tree.root.clone(),
        message: "look at this".into(),
        ..Default::default()
    };
    let artifacts = |path: &str, count| {
        let artifact = ArtifactRef {
            r#type: "diff".into(),
            r#ref: path.to_owned(),
        };
        vec![artifact; count]
    };
    let edge = || CreateEdgeRequest {
        session_id: test.tree.session.clone(),
        from_thread_id: test.worker(),
        to_thread_id: test.tree.root.clone(),
        ..Default::default()
    };
    refuses! { test, test.tree.client();
        send_handoff(SendHandoffRequest, handoff()):
            { message: long(1_048_577) } => "message has 1048577 bytes; at most 1048576 are allowed";
            { to_thread_id: " ".into() } => "to_thread_id is required; give an id or an alias";
            { from_thread_id: String::new() } => "from_thread_id is required: an operator has no thread";
            { context_ref: long(1_025) } => "context_ref has 1025 bytes; at most 1024 are allowed";
            { artifacts: artifacts("x", 65) } => "65 artifacts; at most 64 are allowed";
            { artifacts: artifacts("", 1) } => "an artifact needs both type and ref";
            { artifacts: artifacts(&long(1_000), 9) }
                => "the artifacts have 9036 bytes together; at most 8192 are allowed";
            { expectation: 77 } => "expectation";
        create_edge(CreateEdgeRequest, edge()):
            { from_thread_id: String::new() } => "from_thread_id is required; give an id or an alias";
            { to_thread_id: long(65) } => "to_thread_id has 65 bytes; at most 64 are allowed";
            { label: long(129) } => "label has 129 bytes; at most 128 are allowed";
            { label: "findings\nand more".into() } => "label has control characters; remove them";
            { kind: 77 } => "kind";
    }
    assert_eq!(test.tree.head().await, head);
}

fn item(number: usize) -> GroupItem {
    GroupItem {
        key: format!("k{number}"),
        ..GroupItem::default()
    }
}

/// `use_cases/group_plan.rs` of the supervisor tests other invalid plans.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_group_requests_are_rejected() {
    let test = TestSession::start().await;
    let template = || SpawnAgentRequest {
        agent_type: "worker".into(),
        message: text("Review it."),
        ..Default::default()
    };
    let group = || CreateGroupRequest {
        session_id: test.tree.session.clone(),
        items: (0..3).map(item).collect(),
        max_concurrency: 3,
        template: Some(template()),
        ..Default::default()
    };
    refuses! { test, test.tree.client();
        create_group(CreateGroupRequest, group()):
            { items: Vec::new() } => "at least one item";
            { items: vec![item(0), item(0), item(2)] } => "item 1: the key \"k0\" occurs twice";
            { template: Some(SpawnAgentRequest { agent_type: "absent".into(), ..template() }) }
                NotFound TemplateNotFound => "missing agent template: absent";
            { template: Some(SpawnAgentRequest { result_schema: "{".into(), ..template() }) }
                => "result_schema cannot be used";
            { items: (0..501).map(item).collect() }
                => "501 items; at most 500 are allowed; split the group, or raise --max-group-items";
            { max_concurrency: 1_001 } => "1 to 1000 are allowed";
            { join: GroupJoin::Quorum.into() } => "quorum is 0; 1 to 3 are possible";
            { retries: 11 } => "at most 10 are allowed";
            { items: vec![item(0), item(1), GroupItem { message: long(2 << 20), ..item(2) }] }
                => "item 2: the input has";
        get_group(GetGroupRequest, Default::default()):
            { session_id: test.tree.session.clone(), name: "review".into() } NotFound NotFound
                => "group review not found";
    }
}
