//! Bad input to every method that is built: the right code, a stable reason, a text that says what is wrong and what to do;
//! and after each the service still answers.

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
        ListSpawnableAgentsRequest, ResolveApprovalRequest, ResumeAgentRequest, RunnerHello, RunnerKind,
        SendHandoffRequest, SendInputRequest, SetThreadNoteRequest, SpawnAgentRequest, ToolCeiling,
        UpdateSessionRequest, UpdateThreadBudgetRequest, WaitAgentsRequest, WatchSessionsRequest, WatchThreadsRequest,
        Webhook, attach_request::Message, input_item::Item,
    },
};
use troupe_tests::{
    UNKNOWN, client,
    pair::{OPERATOR, Pair, RUNNER, SERVICE, VIEWER},
    refusal::refused,
    runner::hello,
    tree::{Spawned, Tree},
    within,
};

/// A pair with sessions and threads that bad input can name.
struct TestCluster {
    pair: Pair,
    tree: Tree,
    worker: Spawned,
    closed: String,
}

impl TestCluster {
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

/// Makes each call and checks how it is refused, and that the session can be read after it.
macro_rules! refuses {
    ($cluster:expr, $client:expr; $($method:ident($request:expr) => $code:ident $reason:ident $text:expr;)+) => {$(
        // On the heap: together, the cases would fill the stack of the test.
        Box::pin(async {
            let answer = within("an answer", $client.clone().$method($request)).await;
            refused(answer, Code::$code, Reason::$reason, $text);
            $cluster.tree.head().await;
        })
        .await;
    )+};
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
async fn sessions() {
    let cluster = TestCluster::start().await;
    let limits = |max_depth, max_threads| CreateSessionRequest {
        limits: Some(Limits {
            max_depth,
            max_threads,
            ..Limits::default()
        }),
        ..CreateSessionRequest::default()
    };
    let total = |max_total_threads| CreateSessionRequest {
        limits: Some(Limits {
            max_total_threads: Some(max_total_threads),
            ..Limits::default()
        }),
        ..CreateSessionRequest::default()
    };
    let approved_within = |seconds, nanos| CreateSessionRequest {
        approval_timeout: Some(Duration { seconds, nanos }),
        ..CreateSessionRequest::default()
    };
    let ceiling = ToolCeiling {
        allow_list: vec![String::new()],
        ..ToolCeiling::default()
    };
    let of = |cluster: &TestCluster| UpdateSessionRequest {
        session_id: cluster.tree.session.clone(),
        ..UpdateSessionRequest::default()
    };
    let webhook = |url: &str, secret| Webhook {
        url: url.to_owned(),
        secret: long(secret),
        ..Webhook::default()
    };
    let hooked = |cluster: &TestCluster, webhooks| UpdateSessionRequest {
        webhooks,
        replace_webhooks: true,
        ..of(cluster)
    };
    refuses! { cluster, cluster.tree.client();
        create_session(CreateSessionRequest { cwd: "a/b".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "cwd \"a/b\" is relative; give an absolute path";
        create_session(CreateSessionRequest { cwd: "/a/../b".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "cwd \"/a/../b\" goes up by \"..\"; give the path that it leads to";
        create_session(CreateSessionRequest { cwd: format!("/{}", long(4096)), ..Default::default() })
            => InvalidArgument InvalidArgument "cwd has 4097 bytes; at most 4096 are allowed";
        create_session(CreateSessionRequest { request_id: long(129), ..Default::default() })
            => InvalidArgument InvalidArgument "request_id has 129 bytes; at most 128 are allowed";
        create_session(limits(Some(99), None))
            => InvalidArgument InvalidArgument "limits.max_depth 99 is more than this service allows (2)";
        create_session(limits(None, Some(0)))
            => InvalidArgument InvalidArgument "limits.max_threads must be at least 1";
        create_session(total(10_001)) => InvalidArgument InvalidArgument
            "limits.max_total_threads 10001 is more than this service allows (10000)";
        create_session(CreateSessionRequest { sandbox: 77, ..Default::default() })
            => InvalidArgument InvalidArgument "sandbox";
        create_session(CreateSessionRequest { slot_release: -1, ..Default::default() })
            => InvalidArgument InvalidArgument "slot_release";
        create_session(CreateSessionRequest { message: text(" \n"), ..Default::default() })
            => InvalidArgument InvalidInput "Empty message can't be sent to an agent";
        create_session(CreateSessionRequest { message: text("x"), items: vec![piece("x")], ..Default::default() })
            => InvalidArgument InvalidInput "Provide either message or items, but not both";
        create_session(CreateSessionRequest { agent_type: "nobody".into(), ..Default::default() })
            => NotFound TemplateNotFound "missing agent template: nobody";
        create_session(CreateSessionRequest {
            agent_type: "worker".into(),
            role_template: "orchestrator".into(),
            ..Default::default()
        }) => InvalidArgument InvalidArgument "give agent_type or role_template, not both";
        create_session(CreateSessionRequest { agent_name: "strict".into(), ..Default::default() })
            => InvalidArgument InvalidAgentName "agent_name requires a non-default agent_type";
        create_session(CreateSessionRequest { reasoning_effort: "extreme".into(), model: "m".into(), ..Default::default() })
            => InvalidArgument UnsupportedEffort "reasoning_effort \"extreme\" is not supported for model \"m\"";
        create_session(CreateSessionRequest { labels: [(String::new(), "x".into())].into(), ..Default::default() })
            => InvalidArgument InvalidArgument "a label has an empty key";
        create_session(CreateSessionRequest { labels: [(String::from("team"), "a\nb".into())].into(), ..Default::default() })
            => InvalidArgument InvalidArgument "labels has control characters; remove them";
        create_session(CreateSessionRequest {
            runner_labels: [(String::from("zone\r"), "a".into())].into(),
            ..Default::default()
        }) => InvalidArgument InvalidArgument "runner_labels has control characters; remove them";
        create_session(CreateSessionRequest { tool_ceiling: Some(ceiling), ..Default::default() })
            => InvalidArgument InvalidArgument "tool_ceiling";
        create_session(CreateSessionRequest { budget: Some(negative()), ..Default::default() })
            => InvalidArgument InvalidArgument "budget.wall_time must not be negative";
        create_session(CreateSessionRequest { edge_management: 77, ..Default::default() })
            => InvalidArgument InvalidArgument "edge_management";
        create_session(CreateSessionRequest { orchestrators: vec!["x".into(); 65], ..Default::default() })
            => InvalidArgument InvalidArgument "65 orchestrators; at most 64 are allowed";
        create_session(CreateSessionRequest { orchestrators: vec![long(129)], ..Default::default() })
            => InvalidArgument InvalidArgument "orchestrators has 129 bytes; at most 128 are allowed";
        create_session(CreateSessionRequest { orchestrators: vec![" ".into()], ..Default::default() })
            => InvalidArgument InvalidArgument "orchestrators has an empty name; give the name of a graph template";
        update_session(UpdateSessionRequest { edge_management: Some(0), ..of(&cluster) })
            => InvalidArgument InvalidArgument "edge_management";
        update_session(UpdateSessionRequest { orchestrators: vec!["lead".into()], ..of(&cluster) })
            => InvalidArgument InvalidArgument "orchestrators are given without replace_orchestrators";
        update_session(UpdateSessionRequest::default()) => InvalidArgument InvalidArgument "session_id is required";
        update_session(UpdateSessionRequest { mode: Some(0), ..of(&cluster) }) => InvalidArgument InvalidArgument "mode";
        update_session(UpdateSessionRequest { limits: limits(None, Some(99)).limits, ..of(&cluster) })
            => InvalidArgument InvalidArgument "limits.max_threads 99 is more than this service allows (12)";
        update_session(UpdateSessionRequest { budget: Some(negative()), ..of(&cluster) })
            => InvalidArgument InvalidArgument "budget.wall_time must not be negative";
        update_session(UpdateSessionRequest { webhooks: vec![webhook("https://h", 16)], ..of(&cluster) })
            => InvalidArgument InvalidArgument "webhooks are given without replace_webhooks";
        update_session(hooked(&cluster, vec![webhook("https://h", 16); 9]))
            => InvalidArgument InvalidArgument "9 webhooks; at most 8 are allowed";
        update_session(hooked(&cluster, vec![webhook("ftp://h", 16)]))
            => InvalidArgument InvalidArgument "webhooks.url \"ftp://h\": its scheme is neither http nor https";
        update_session(hooked(&cluster, vec![webhook("https://h", 15)]))
            => InvalidArgument InvalidArgument "webhooks.secret has 15 bytes; give 16 to 256";

        get_session(GetSessionRequest::default()) => InvalidArgument InvalidArgument "session_id is required";
        get_session(GetSessionRequest { session_id: "x".into() })
            => InvalidArgument InvalidArgument "invalid session_id \"x\"; expected a UUID of 36 characters";
        get_session(GetSessionRequest { session_id: UNKNOWN.replace('-', "") })
            => InvalidArgument InvalidArgument "expected a UUID of 36 characters";
        get_session(GetSessionRequest { session_id: UNKNOWN.into() })
            => NotFound SessionNotFound &format!("session with id {UNKNOWN} not found");
        list_sessions(ListSessionsRequest { page_size: -1, ..Default::default() })
            => InvalidArgument InvalidArgument "page_size -1 is negative";
        list_sessions(ListSessionsRequest { page_token: "1-1-0".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "page_token is not from the page before of this listing";
        close_session(CloseSessionRequest::default()) => InvalidArgument InvalidArgument "session_id is required";
        close_session(CloseSessionRequest { session_id: UNKNOWN.into(), ..Default::default() })
            => NotFound SessionNotFound UNKNOWN;
        close_session(CloseSessionRequest {
            session_id: cluster.tree.session.clone(),
            deadline: Some(Duration { seconds: -1, nanos: 0 }),
            ..Default::default()
        }) => InvalidArgument InvalidArgument "deadline must not be negative";

        create_session(CreateSessionRequest {
            retention: Some(Duration { seconds: -1, nanos: 0 }),
            ..Default::default()
        }) => InvalidArgument InvalidArgument "retention must not be negative";
        create_session(approved_within(-1, 0)) => InvalidArgument InvalidArgument "approval_timeout must not be negative";
        create_session(approved_within(0, 1)) => InvalidArgument InvalidArgument
            "approval_timeout 1ns is not between 1s and 604800s; 0 means no limit";
        create_session(approved_within(604_801, 0)) => InvalidArgument InvalidArgument
            "approval_timeout 604801s is not between 1s and 604800s; 0 means no limit";
        watch_sessions(WatchSessionsRequest { labels: [(String::new(), "x".into())].into(), ..Default::default() })
            => InvalidArgument InvalidArgument "a label has an empty key";
        delete_session(DeleteSessionRequest::default()) => InvalidArgument InvalidArgument "session_id is required";
        delete_session(DeleteSessionRequest { session_id: UNKNOWN.into(), ..Default::default() })
            => NotFound SessionNotFound UNKNOWN;
        delete_session(DeleteSessionRequest { session_id: cluster.tree.session.clone(), ..Default::default() })
            => FailedPrecondition IllegalTransition "is open; close it with CloseSession before it is deleted";
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawns() {
    let cluster = TestCluster::start().await;
    let spawn = || cluster.tree.request("worker");
    refuses! { cluster, cluster.tree.client();
        spawn_agent(SpawnAgentRequest { session_id: String::new(), ..spawn() })
            => InvalidArgument InvalidArgument "give session_id or thread_id";
        spawn_agent(SpawnAgentRequest { parent_thread_id: "x".into(), ..spawn() })
            => InvalidArgument InvalidArgument "invalid parent_thread_id \"x\"";
        spawn_agent(SpawnAgentRequest { parent_thread_id: UNKNOWN.into(), ..spawn() })
            => NotFound ThreadNotFound &format!("agent with id {UNKNOWN} not found");
        spawn_agent(SpawnAgentRequest { parent_thread_id: cluster.closed(), ..spawn() })
            => FailedPrecondition ThreadClosed &cluster.is_closed();
        spawn_agent(SpawnAgentRequest { message: None, ..spawn() })
            => InvalidArgument InvalidInput "Provide one of: message or items";
        spawn_agent(SpawnAgentRequest { items: vec![piece("x")], ..spawn() })
            => InvalidArgument InvalidInput "Provide either message or items, but not both";
        spawn_agent(SpawnAgentRequest { message: None, items: vec![piece(" "), InputItem::default()], ..spawn() })
            => InvalidArgument InvalidInput "Empty message can't be sent to an agent";
        spawn_agent(SpawnAgentRequest { message: None, items: vec![piece("x"); 65], ..spawn() })
            => InvalidArgument InvalidArgument "65 items; at most 64 are allowed";
        spawn_agent(SpawnAgentRequest { message: text(&long(1_100_000)), ..spawn() })
            => InvalidArgument InvalidArgument "at most 1048576 are allowed";
        spawn_agent(SpawnAgentRequest { request_id: long(129), ..spawn() })
            => InvalidArgument InvalidArgument "request_id has 129 bytes; at most 128 are allowed";
        spawn_agent(SpawnAgentRequest { agent_type: "Not a name".into(), ..spawn() })
            => InvalidArgument InvalidAgentType "invalid agent_type \"not a name\"; expected snake_case or kebab-case";
        spawn_agent(SpawnAgentRequest { agent_type: "nobody".into(), ..spawn() })
            => NotFound TemplateNotFound "missing agent template: nobody";
        spawn_agent(SpawnAgentRequest { agent_name: "nobody".into(), ..spawn() })
            => InvalidArgument InvalidAgentName "unknown agent_name \"nobody\" for agent_type \"worker\"";
        spawn_agent(SpawnAgentRequest { reasoning_effort: "extreme".into(), ..spawn() })
            => InvalidArgument UnsupportedEffort "reasoning_effort \"extreme\" is not supported for model";
        spawn_agent(SpawnAgentRequest { expected_digest: "0".repeat(64), ..spawn() })
            => FailedPrecondition DigestMismatch "template \"worker\" has digest";
        spawn_agent(SpawnAgentRequest { expected_digest: "0".into(), ..spawn() })
            => InvalidArgument InvalidArgument "expected_digest is not a SHA-256";
        spawn_agent(SpawnAgentRequest { label: long(129), ..spawn() })
            => InvalidArgument InvalidArgument "label has 129 bytes; at most 128 are allowed";
        spawn_agent(SpawnAgentRequest { label: "\u{1b}[2J".into(), ..spawn() })
            => InvalidArgument InvalidArgument "label has control characters; remove them";
        spawn_agent(SpawnAgentRequest { label: "Docs\n## Task".into(), ..spawn() })
            => InvalidArgument InvalidArgument "label has control characters; remove them";
        spawn_agent(SpawnAgentRequest { alias: "sco\tut".into(), ..spawn() })
            => InvalidArgument InvalidArgument "alias has control characters; remove them";
        spawn_agent(SpawnAgentRequest { alias: long(65), ..spawn() })
            => InvalidArgument InvalidArgument "alias has 65 bytes; at most 64 are allowed";
        spawn_agent(SpawnAgentRequest { alias: "scout\u{200b}".into(), ..spawn() })
            => InvalidArgument InvalidArgument "alias \"scout\\u{200b}\" has the character '\\u{200b}'; use the letters";
        spawn_agent(SpawnAgentRequest { alias: "sc\u{43e}ut".into(), ..spawn() })
            => InvalidArgument InvalidArgument "has the character";
        spawn_agent(SpawnAgentRequest { alias: "the scout".into(), ..spawn() })
            => InvalidArgument InvalidArgument "has the character ' '";
        spawn_agent(SpawnAgentRequest { alias: "root".into(), ..spawn() })
            => InvalidArgument InvalidArgument "alias \"root\" is reserved, as are root, parent, self; choose another";
        spawn_agent(SpawnAgentRequest { alias: " Parent ".into(), ..spawn() })
            => InvalidArgument InvalidArgument "alias \"Parent\" is reserved";
        spawn_agent(SpawnAgentRequest { alias: "SELF".into(), ..spawn() })
            => InvalidArgument InvalidArgument "alias \"SELF\" is reserved";
        spawn_agent(SpawnAgentRequest { alias: cluster.worker(), ..spawn() })
            => InvalidArgument InvalidArgument "has the form of an id; choose another";
        spawn_agent(SpawnAgentRequest { alias: cluster.worker().to_uppercase().replace('-', ""), ..spawn() })
            => InvalidArgument InvalidArgument "has the form of an id; choose another";
        spawn_agent(SpawnAgentRequest { thread_note: text(&long(1_025)), ..spawn() })
            => InvalidArgument InvalidArgument "thread_note has 1025 bytes; at most 1024 are allowed";
        spawn_agent(SpawnAgentRequest { working_directory: "here".into(), ..spawn() })
            => InvalidArgument InvalidArgument "working_directory \"here\" is relative; give an absolute path";
        spawn_agent(SpawnAgentRequest { working_directory: format!("{}/..", cluster.pair.project()), ..spawn() })
            => InvalidArgument InvalidArgument "goes up by \"..\"; give the path that it leads to";
        spawn_agent(SpawnAgentRequest { working_directory: cluster.pair.elsewhere(), ..spawn() })
            => PermissionDenied CwdOutsideRoots "lies outside the workspace roots";
        spawn_agent(SpawnAgentRequest { working_directory: format!("{}/none", cluster.pair.project()), ..spawn() })
            => NotFound CwdNotFound "is not an existing directory";
        spawn_agent(SpawnAgentRequest { on_limit: 9, ..spawn() }) => InvalidArgument InvalidArgument "on_limit";
        spawn_agent(SpawnAgentRequest { budget: Some(negative()), ..spawn() })
            => InvalidArgument InvalidArgument "budget.wall_time must not be negative";
        spawn_agent(SpawnAgentRequest { close_policy: 9, ..spawn() }) => InvalidArgument InvalidArgument "close_policy";
        spawn_agent(SpawnAgentRequest { role_template: "planner".into(), ..spawn() })
            => InvalidArgument InvalidArgument "give agent_type or role_template, not both";
        spawn_agent(SpawnAgentRequest { role_template: "nobody".into(), agent_type: String::new(), ..spawn() })
            => NotFound TemplateNotFound "missing agent template: nobody";
        spawn_agent(SpawnAgentRequest { capabilities: vec![String::new(); 65], ..spawn() })
            => InvalidArgument InvalidArgument "65 capabilities; at most 64 are allowed";
        spawn_agent(SpawnAgentRequest { capabilities: vec![long(129)], ..spawn() })
            => InvalidArgument InvalidArgument "capabilities has 129 bytes; at most 128 are allowed";
        spawn_agent(SpawnAgentRequest { capabilities: vec!["delegate".into()], ..spawn() })
            => InvalidArgument InvalidArgument "capability \"delegate\" is not declared by \"worker\"; it declares: none";
    }
    cluster.tree.spawn("worker").await;
    // White space at the ends of a name was never a part of it.
    let request = SpawnAgentRequest {
        label: String::from(" Docs\n"),
        alias: String::from("scout\n"),
        ..spawn()
    };
    let spawned = Spawned::of(cluster.tree.try_spawn(request).await.unwrap()).thread;
    assert_eq!((spawned.label.as_str(), spawned.alias.as_str()), ("Docs", "scout"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verbs_on_threads() {
    let cluster = TestCluster::start().await;
    let (worker, closed) = (|| cluster.worker(), || cluster.closed());
    refuses! { cluster, cluster.tree.client();
        send_input(SendInputRequest { message: text("x"), ..Default::default() })
            => InvalidArgument InvalidArgument "thread_id is required";
        send_input(SendInputRequest { thread_id: worker(), ..Default::default() })
            => InvalidArgument InvalidInput "Provide one of: message or items";
        send_input(SendInputRequest { thread_id: worker(), message: text(""), ..Default::default() })
            => InvalidArgument InvalidInput "Empty message can't be sent to an agent";
        send_input(SendInputRequest { thread_id: worker(), message: text(&long(1_100_000)), ..Default::default() })
            => InvalidArgument InvalidArgument "at most 1048576 are allowed";
        send_input(SendInputRequest { thread_id: UNKNOWN.into(), message: text("x"), ..Default::default() })
            => NotFound ThreadNotFound &format!("agent with id {UNKNOWN} not found");
        send_input(SendInputRequest { thread_id: cluster.tree.root.clone(), message: text("x"), ..Default::default() })
            => FailedPrecondition IllegalTransition "its client executes it itself";

        interrupt_agent(InterruptAgentRequest::default()) => InvalidArgument InvalidArgument "thread_id is required";
        interrupt_agent(InterruptAgentRequest { thread_id: worker(), reason: long(257), ..Default::default() })
            => InvalidArgument InvalidArgument "reason has 257 bytes; at most 256 are allowed";
        interrupt_agent(InterruptAgentRequest { thread_id: UNKNOWN.into(), ..Default::default() })
            => NotFound ThreadNotFound UNKNOWN;

        wait_agents(WaitAgentsRequest::default()) => InvalidArgument InvalidArgument "ids must be non-empty";
        wait_agents(WaitAgentsRequest { thread_ids: vec!["x".into()], ..Default::default() })
            => InvalidArgument InvalidArgument "invalid thread_ids \"x\"";
        wait_agents(WaitAgentsRequest { thread_ids: vec![worker(); 1_001], ..Default::default() })
            => InvalidArgument InvalidArgument "at most 1000 ids are allowed";
        wait_agents(WaitAgentsRequest { thread_ids: vec![worker()], mode: 3, ..Default::default() })
            => InvalidArgument InvalidArgument "mode 3 is unknown";
        wait_agents(WaitAgentsRequest {
            thread_ids: vec![worker()],
            timeout: Some(Duration::default()),
            ..Default::default()
        }) => InvalidArgument InvalidArgument "timeout_ms must be greater than zero";

        close_agent(CloseAgentRequest::default()) => InvalidArgument InvalidArgument "thread_id is required";
        close_agent(CloseAgentRequest { thread_id: "x".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "invalid thread_id \"x\"";
        close_agent(CloseAgentRequest {
            thread_id: worker(),
            deadline: Some(Duration { seconds: 31, nanos: 0 }),
            ..Default::default()
        }) => InvalidArgument InvalidArgument "deadline is more than 30 s";
        close_agent(CloseAgentRequest { thread_id: worker(), close_policy: 9, ..Default::default() })
            => InvalidArgument InvalidArgument "close_policy";

        update_thread_budget(UpdateThreadBudgetRequest::default())
            => InvalidArgument InvalidArgument "thread_id is required";
        update_thread_budget(UpdateThreadBudgetRequest { thread_id: worker(), ..Default::default() })
            => InvalidArgument InvalidArgument "budget is required; an empty one is without bound";
        update_thread_budget(UpdateThreadBudgetRequest { thread_id: worker(), budget: Some(negative()), ..Default::default() })
            => InvalidArgument InvalidArgument "budget.wall_time must not be negative";
        update_thread_budget(UpdateThreadBudgetRequest { thread_id: closed(), budget: Some(Budget::default()), ..Default::default() })
            => FailedPrecondition ThreadClosed &cluster.is_closed();

        resume_agent(ResumeAgentRequest::default()) => InvalidArgument InvalidArgument "thread_id is required";
        resume_agent(ResumeAgentRequest { thread_id: UNKNOWN.into(), ..Default::default() })
            => NotFound ThreadNotFound UNKNOWN;
        resume_agent(ResumeAgentRequest { thread_id: closed(), on_limit: 9, ..Default::default() })
            => InvalidArgument InvalidArgument "on_limit: OnLimit has no value 9";

        set_thread_note(SetThreadNoteRequest { thread_id: worker(), thread_note: long(1_025), ..Default::default() })
            => InvalidArgument InvalidArgument "thread_note has 1025 bytes; at most 1024 are allowed";
        set_thread_note(SetThreadNoteRequest { thread_id: worker(), thread_note: "\u{7}".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "thread_note has control characters; remove them";
    }

    // A closed session has no thread that could be opened again.
    let tree = &cluster.tree;
    tree.close(&tree.root).await;
    refuses! { cluster, tree.client();
        resume_agent(ResumeAgentRequest { thread_id: tree.root.clone(), ..Default::default() })
            => FailedPrecondition SessionClosed "the session is closed";
        resume_agent(ResumeAgentRequest { thread_id: closed(), ..Default::default() })
            => FailedPrecondition ThreadClosed "is closed";
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads() {
    let cluster = TestCluster::start().await;
    let (session, worker) = (|| cluster.tree.session.clone(), || cluster.worker());
    refuses! { cluster, cluster.tree.client();
        get_thread(GetThreadRequest::default()) => InvalidArgument InvalidArgument "thread_id is required";
        get_thread(GetThreadRequest { thread_id: UNKNOWN.into(), ..Default::default() })
            => NotFound ThreadNotFound &format!("agent with id {UNKNOWN} not found");
        get_thread(GetThreadRequest { session_id: UNKNOWN.into(), thread_id: worker() })
            => NotFound SessionNotFound UNKNOWN;

        list_active_agents(ListActiveAgentsRequest::default())
            => InvalidArgument InvalidArgument "give session_id or thread_id";
        list_active_agents(ListActiveAgentsRequest { session_id: session(), scope: 9, ..Default::default() })
            => InvalidArgument InvalidArgument "scope";
        list_active_agents(ListActiveAgentsRequest { session_id: session(), statuses: vec![0], ..Default::default() })
            => InvalidArgument InvalidArgument "statuses";
        list_active_agents(ListActiveAgentsRequest { session_id: session(), page_size: -1, ..Default::default() })
            => InvalidArgument InvalidArgument "page_size -1 is negative";
        list_active_agents(ListActiveAgentsRequest { session_id: session(), page_token: long(200), ..Default::default() })
            => InvalidArgument InvalidArgument "start again without it";

        authorize_tool(AuthorizeToolRequest { thread_id: worker(), ..Default::default() })
            => InvalidArgument InvalidArgument "tool is required";
        authorize_tool(AuthorizeToolRequest {
            thread_id: worker(),
            tool: "x".into(),
            arguments_json: "{\"cmd\": ls}".into(),
            ..Default::default()
        }) => InvalidArgument InvalidArgument "arguments_json is not valid JSON: expected value at line 1 column 9";
        authorize_tool(AuthorizeToolRequest {
            thread_id: worker(),
            tool: "x".into(),
            arguments_json: "{} {}".into(),
            ..Default::default()
        }) => InvalidArgument InvalidArgument "arguments_json is not valid JSON: trailing characters";
        authorize_tool(AuthorizeToolRequest { thread_id: UNKNOWN.into(), tool: "x".into(), ..Default::default() })
            => NotFound ThreadNotFound UNKNOWN;
        describe_tools(DescribeToolsRequest::default()) => InvalidArgument InvalidArgument "give session_id or thread_id";
        list_spawnable_agents(ListSpawnableAgentsRequest { session_id: session(), page_size: -1, ..Default::default() })
            => InvalidArgument InvalidArgument "page_size -1 is negative";
        list_prompts(ListPromptsRequest::default()) => InvalidArgument InvalidArgument "give session_id or thread_id";
        list_prompts(ListPromptsRequest { thread_id: worker(), page_size: -1, ..Default::default() })
            => InvalidArgument InvalidArgument "page_size -1 is negative";
        get_prompt(GetPromptRequest { thread_id: worker(), ..Default::default() })
            => InvalidArgument InvalidArgument "turn is required; turns count from 1";
        get_prompt(GetPromptRequest { thread_id: worker(), turn: 1, ..Default::default() })
            => NotFound NotFound "prompt of turn 1 not found";
        list_artifacts(ListArtifactsRequest::default())
            => InvalidArgument InvalidArgument "give session_id or thread_id";
        list_artifacts(ListArtifactsRequest { thread_id: "x".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "invalid thread_id \"x\"";
        list_artifacts(ListArtifactsRequest { session_id: session(), page_token: "x".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "start again without it";
        get_content(GetContentRequest { session_id: session(), digest: "x".into() })
            => InvalidArgument InvalidArgument "invalid digest \"x\"; expected a SHA-256";
        get_content(GetContentRequest { digest: "0".repeat(64), ..Default::default() })
            => InvalidArgument InvalidArgument "session_id is required";
        get_content(GetContentRequest { session_id: session(), digest: "0".repeat(64) })
            => NotFound NotFound "content 0000";

        get_quota(GetQuotaRequest::default()) => InvalidArgument InvalidArgument "give session_id or thread_id";
        get_quota(GetQuotaRequest { thread_id: "x".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "invalid thread_id \"x\"";

        watch_threads(WatchThreadsRequest::default()) => InvalidArgument InvalidArgument "give session_id or thread_id";
        watch_threads(WatchThreadsRequest { session_id: session(), kinds: vec![99], ..Default::default() })
            => InvalidArgument InvalidArgument "99 is no kind of event";
        watch_threads(WatchThreadsRequest { thread_id: UNKNOWN.into(), ..Default::default() })
            => NotFound ThreadNotFound UNKNOWN;
    }

    // The only read that answers for missing and existing threads alike, in any order.
    for thread_ids in [
        vec![cluster.closed(), UNKNOWN.to_owned()],
        vec![UNKNOWN.to_owned(), cluster.closed()],
    ] {
        let request = WaitAgentsRequest {
            thread_ids,
            ..WaitAgentsRequest::default()
        };
        let answer = within("an answer", cluster.tree.client().wait_agents(request)).await;
        let answer = answer.unwrap().into_inner();
        assert_eq!(answer.not_found_ids, [UNKNOWN]);
        assert_eq!(answer.statuses.len(), 1, "{answer:?}");
        assert_eq!(answer.statuses[0].thread_id, cluster.closed());
    }
}

/// `registry-svc/tests/registry` has the other errors of the registry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry() {
    let cluster = TestCluster::start().await;
    let worker = || ResolveSpawnRequest {
        agent_type: text("worker"),
        ..ResolveSpawnRequest::default()
    };
    refuses! { cluster, cluster.pair.registry(OPERATOR);
        list_agents(ListAgentsRequest { namespace: 9, ..Default::default() })
            => InvalidArgument InvalidArgument "namespace 9 is unknown";
        resolve_spawn(ResolveSpawnRequest { expected_digest: text("0"), ..worker() })
            => InvalidArgument InvalidArgument "expected_digest is not a SHA-256; expected 64 hexadecimal digits";
        resolve_spawn(ResolveSpawnRequest { mode: 9, ..worker() }) => InvalidArgument InvalidArgument "mode 9 is unknown";
        list_diagnostics(ListDiagnosticsRequest { cwd: "a/b".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "cwd \"a/b\" is relative; give an absolute path";
        list_diagnostics(ListDiagnosticsRequest { page_size: -1, ..Default::default() })
            => InvalidArgument InvalidArgument "page_size is -1; it may not be negative";
    }
}

/// How an attempt to attach is refused.
async fn attach(pair: &Pair, token: &str, messages: Vec<AttachRequest>) -> Result<(), Status> {
    let attached = within("an answer to hello", pair.runners(token).attach(iter(messages))).await;
    attached.map(|_| ())
}

fn says(message: Message) -> Vec<AttachRequest> {
    vec![AttachRequest { message: Some(message) }]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runners() {
    let cluster = TestCluster::start().await;
    let first = "the first message of a runner must be hello";
    let name = "runner_id must have 1 to 128 bytes";
    let long_kind = RunnerKind {
        kind: long(129),
        ..RunnerKind::default()
    };
    let hellos = [
        (hello(""), name),
        (hello(&long(129)), name),
        (
            RunnerHello {
                kinds: Vec::new(),
                ..hello("r")
            },
            "a runner must offer 1 to 16 kinds",
        ),
        (
            RunnerHello {
                kinds: vec![long_kind],
                ..hello("r")
            },
            "a kind must have at most 128 bytes without control characters",
        ),
        (
            RunnerHello {
                labels: [(String::from("zone"), String::from("a\nb"))].into(),
                ..hello("r")
            },
            "values of at most 128, without control characters",
        ),
        (
            RunnerHello {
                session_id: String::from("x"),
                ..hello("r")
            },
            "session_id must be a UUID or empty",
        ),
    ];
    let mut bad = vec![
        (Vec::new(), first),
        (says(Message::Heartbeat(Default::default())), first),
    ];
    bad.extend(hellos.map(|(hello, text)| (says(Message::Hello(hello)), text)));
    for (messages, text) in bad {
        let answer = attach(&cluster.pair, RUNNER, messages).await;
        refused(answer, Code::InvalidArgument, Reason::InvalidArgument, text);
        cluster.tree.head().await;
    }
    let greeting = || says(Message::Hello(hello("r")));
    for token in [VIEWER, SERVICE, &cluster.worker.token] {
        let answer = attach(&cluster.pair, token, greeting()).await;
        refused(answer, Code::PermissionDenied, Reason::NotPermitted, "may not call");
    }
    attach(&cluster.pair, RUNNER, greeting()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers() {
    let cluster = TestCluster::start().await;
    let TestCluster { pair, tree, worker, .. } = &cluster;
    let session = || GetSessionRequest {
        session_id: tree.session.clone(),
    };
    refuses! { cluster, pair.stranger();
        get_session(session()) => Unauthenticated Unauthenticated "send \"authorization: Bearer TOKEN\"";
        create_session(CreateSessionRequest::default()) => Unauthenticated Unauthenticated "missing, malformed or stale";
    }
    let forged = format!("{}x", worker.token);
    for token in ["nonsense", &forged] {
        refuses! { cluster, pair.with_token(token);
            get_session(session()) => Unauthenticated Unauthenticated "missing, malformed or stale";
        }
    }
    refuses! { cluster, pair.with_token(VIEWER);
        spawn_agent(tree.request("worker"))
            => PermissionDenied NotPermitted "a caller of kind operator (viewer) may not call";
        create_session(CreateSessionRequest::default()) => PermissionDenied NotPermitted "operator (viewer)";
        close_agent(CloseAgentRequest { thread_id: worker.id.clone(), ..Default::default() })
            => PermissionDenied NotPermitted "operator (viewer)";
    }
    pair.with_token(VIEWER).get_session(session()).await.unwrap();
    for token in [RUNNER, SERVICE] {
        refuses! { cluster, pair.with_token(token);
            get_session(session()) => PermissionDenied NotPermitted "a caller of kind";
            spawn_agent(tree.request("worker")) => PermissionDenied NotPermitted "may not call";
        }
    }
    // The registry knows operators and the supervisor, and no agent.
    refuses! { cluster, pair.registry(RUNNER);
        list_agents(ListAgentsRequest::default()) => PermissionDenied NotPermitted "a caller of kind runner";
    }
    pair.registry(SERVICE)
        .list_agents(ListAgentsRequest::default())
        .await
        .unwrap();
}

/// The full paths of all methods of both services.
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

/// Calls a method with these bytes for its message.
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
        // The beginning of a number that does not end.
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
    let cluster = TestCluster::start().await;
    let head = cluster.tree.head().await;
    for path in methods() {
        let has_bundle = path.ends_with("/PutWorkspace") || path.ends_with("/GetWorkspace");
        let bound = if has_bundle {
            MAX_WORKSPACE_MESSAGE_BYTES
        } else {
            MAX_MESSAGE_BYTES
        };
        let status = send_bytes(&cluster.pair, &path, vec![0; bound + 1]).await;
        refused::<()>(
            Err(status),
            Code::ResourceExhausted,
            Reason::MessageTooLarge,
            &format!("has {} bytes; at most {bound} are allowed", bound + 1),
        );
    }
    assert_eq!(cluster.tree.head().await, head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approvals() {
    let cluster = TestCluster::start().await;
    let session_id = || cluster.tree.session.clone();
    let resolve = || ResolveApprovalRequest {
        session_id: session_id(),
        approval_id: UNKNOWN.into(),
        ..Default::default()
    };
    refuses! { cluster, cluster.tree.client();
        list_approvals(ListApprovalsRequest::default())
            => InvalidArgument InvalidArgument "give session_id or thread_id";
        list_approvals(ListApprovalsRequest { session_id: UNKNOWN.into(), ..Default::default() })
            => NotFound SessionNotFound "not found";
        list_approvals(ListApprovalsRequest { session_id: session_id(), page_size: -1, ..Default::default() })
            => InvalidArgument InvalidArgument "page_size -1 is negative";
        list_approvals(ListApprovalsRequest { session_id: session_id(), page_token: "x".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "page_token is not from the page before";

        resolve_approval(ResolveApprovalRequest { session_id: String::new(), ..resolve() })
            => InvalidArgument InvalidArgument "give session_id or thread_id";
        resolve_approval(ResolveApprovalRequest { approval_id: String::new(), ..resolve() })
            => InvalidArgument InvalidArgument "approval_id is required";
        resolve_approval(ResolveApprovalRequest { approval_id: "x".into(), ..resolve() })
            => InvalidArgument InvalidArgument "invalid approval_id \"x\"";
        resolve_approval(ResolveApprovalRequest { reason: long(257), ..resolve() })
            => InvalidArgument InvalidArgument "reason has 257 bytes; at most 256 are allowed";
        resolve_approval(resolve()) => NotFound NotFound &format!("approval {UNKNOWN} not found");
    }
}

/// The texts of a handoff are also checked in `hostile_child::invalid_handoff_does_not_reveal_threads`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edges_and_handoffs() {
    let cluster = TestCluster::start().await;
    let head = cluster.tree.head().await;
    let handoff = || SendHandoffRequest {
        from_thread_id: cluster.worker(),
        to_thread_id: cluster.tree.root.clone(),
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
        session_id: cluster.tree.session.clone(),
        from_thread_id: cluster.worker(),
        to_thread_id: cluster.tree.root.clone(),
        ..Default::default()
    };
    refuses! { cluster, cluster.tree.client();
        send_handoff(SendHandoffRequest { message: long(1_048_577), ..handoff() })
            => InvalidArgument InvalidArgument "message has 1048577 bytes; at most 1048576 are allowed";
        send_handoff(SendHandoffRequest { to_thread_id: " ".into(), ..handoff() })
            => InvalidArgument InvalidArgument "to_thread_id is required; give an id or an alias";
        send_handoff(SendHandoffRequest { from_thread_id: String::new(), ..handoff() })
            => InvalidArgument InvalidArgument "from_thread_id is required: an operator has no thread";
        send_handoff(SendHandoffRequest { context_ref: long(1_025), ..handoff() })
            => InvalidArgument InvalidArgument "context_ref has 1025 bytes; at most 1024 are allowed";
        send_handoff(SendHandoffRequest { artifacts: artifacts("x", 65), ..handoff() })
            => InvalidArgument InvalidArgument "65 artifacts; at most 64 are allowed";
        send_handoff(SendHandoffRequest { artifacts: artifacts("", 1), ..handoff() })
            => InvalidArgument InvalidArgument "an artifact needs both type and ref";
        send_handoff(SendHandoffRequest { artifacts: artifacts(&long(1_000), 9), ..handoff() })
            => InvalidArgument InvalidArgument "the artifacts have 9036 bytes together; at most 8192 are allowed";
        send_handoff(SendHandoffRequest { expectation: 77, ..handoff() })
            => InvalidArgument InvalidArgument "expectation";

        create_edge(CreateEdgeRequest { from_thread_id: String::new(), ..edge() })
            => InvalidArgument InvalidArgument "from_thread_id is required; give an id or an alias";
        create_edge(CreateEdgeRequest { to_thread_id: long(65), ..edge() })
            => InvalidArgument InvalidArgument "to_thread_id has 65 bytes; at most 64 are allowed";
        create_edge(CreateEdgeRequest { label: long(129), ..edge() })
            => InvalidArgument InvalidArgument "label has 129 bytes; at most 128 are allowed";
        create_edge(CreateEdgeRequest { label: "findings\nand more".into(), ..edge() })
            => InvalidArgument InvalidArgument "label has control characters; remove them";
        create_edge(CreateEdgeRequest { kind: 77, ..edge() }) => InvalidArgument InvalidArgument "kind";
    }
    assert_eq!(cluster.tree.head().await, head);
}

fn item(number: usize) -> GroupItem {
    GroupItem {
        key: format!("k{number}"),
        ..GroupItem::default()
    }
}

/// The other faults of a plan are in `use_cases/group_plan.rs` of the supervisor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups() {
    let cluster = TestCluster::start().await;
    let with = |change: fn(&mut CreateGroupRequest, &mut SpawnAgentRequest)| {
        let mut template = SpawnAgentRequest {
            agent_type: "worker".into(),
            message: text("Review it."),
            ..Default::default()
        };
        let mut request = CreateGroupRequest {
            session_id: cluster.tree.session.clone(),
            items: (0..3).map(item).collect(),
            max_concurrency: 3,
            ..Default::default()
        };
        change(&mut request, &mut template);
        CreateGroupRequest {
            template: Some(template),
            ..request
        }
    };
    refuses! { cluster, cluster.tree.client();
        create_group(with(|group, _| group.items.clear())) => InvalidArgument InvalidArgument "at least one item";
        create_group(with(|group, _| group.items[1].key = "k0".into()))
            => InvalidArgument InvalidArgument "item 1: the key \"k0\" occurs twice";
        create_group(with(|_, template| template.agent_type = "absent".into()))
            => NotFound TemplateNotFound "missing agent template: absent";
        create_group(with(|_, template| template.result_schema = "{".into()))
            => InvalidArgument InvalidArgument "result_schema cannot be used";
        create_group(with(|group, _| group.items = (0..501).map(item).collect())) => InvalidArgument InvalidArgument
            "501 items; at most 500 are allowed; split the group, or raise --max-group-items";
        create_group(with(|group, _| group.max_concurrency = 1_001))
            => InvalidArgument InvalidArgument "1 to 1000 are allowed";
        create_group(with(|group, _| group.set_join(GroupJoin::Quorum)))
            => InvalidArgument InvalidArgument "quorum is 0; 1 to 3 are possible";
        create_group(with(|group, _| group.retries = 11)) => InvalidArgument InvalidArgument "at most 10 are allowed";
        create_group(with(|group, _| group.items[2].message = long(2 << 20)))
            => InvalidArgument InvalidArgument "item 2: the input has";
        get_group(GetGroupRequest { session_id: cluster.tree.session.clone(), name: "review".into(), ..Default::default() })
            => NotFound NotFound "group review not found";
    }
}
