//! Bad input to every method that is built: the right code, a stable reason, a text that says what to do; and the service
//! lives on.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use support::{Client, start};
use tonic::{Code, Request, Status};
use troupe_proto::{
    fault::reason_of,
    reason::Reason,
    supervisor::v1::{
        AuthorizeToolRequest, CloseAgentRequest, CloseSessionRequest, CreateSessionRequest, GetQuotaRequest,
        GetSessionRequest, GetThreadRequest, InputItem, InterruptAgentRequest, Limits, ListActiveAgentsRequest,
        ListSessionsRequest, ResumeAgentRequest, SendInputRequest, SetThreadNoteRequest, SpawnAgentRequest,
        UpdateSessionRequest, WaitAgentsRequest, WatchThreadsRequest,
    },
};

const UNKNOWN: &str = "01a1fc89-0902-7629-98ed-9dce17881f00";

/// What a session has to be wrong about.
struct Stage {
    client: Client,
    session: String,
    root: String,
    worker: String,
    closed: String,
    /// The token of `worker`.
    token: String,
}

impl Stage {
    async fn set(mut client: Client) -> Self {
        let session = client.create_session(CreateSessionRequest::default()).await.unwrap();
        let session = session.into_inner().session.unwrap();
        let spawn = SpawnAgentRequest {
            session_id: session.session_id.clone(),
            agent_type: String::from("worker"),
            message: Some(String::from("work")),
            return_token: true,
            ..SpawnAgentRequest::default()
        };
        let worker = client.spawn_agent(spawn.clone()).await.unwrap().into_inner();
        let closed = client
            .spawn_agent(spawn)
            .await
            .unwrap()
            .into_inner()
            .thread
            .unwrap()
            .thread_id;
        let close = CloseAgentRequest {
            thread_id: closed.clone(),
            wait: true,
            ..CloseAgentRequest::default()
        };
        client.close_agent(close).await.unwrap();
        Self {
            client,
            session: session.session_id,
            root: session.root_thread_id,
            worker: worker.thread.unwrap().thread_id,
            closed,
            token: worker.thread_token,
        }
    }

    /// A request with a thread's token.
    fn as_worker<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let value = format!("Bearer {}", self.token).parse().unwrap();
        request.metadata_mut().insert("authorization", value);
        request
    }
}

#[track_caller]
fn expect<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, reason: Reason, text: &str) {
    let status = answer.expect_err(text);
    assert_eq!(status.code(), code, "{status:?}");
    assert_eq!(reason_of(&status), Some(reason), "{status:?}");
    assert!(status.message().contains(text), "{:?} lacks {text:?}", status.message());
}

macro_rules! refuses {
    ($stage:ident: $($method:ident($request:expr) => $code:ident $reason:ident $text:expr;)+) => {$(
        expect($stage.client.clone().$method($request).await, Code::$code, Reason::$reason, $text);
    )+};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_method_says_what_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let (_process, client) = start(home.path()).await;
    let stage = Stage::set(client).await;
    let (session, root, worker, closed) = (
        || stage.session.clone(),
        || stage.root.clone(),
        || stage.worker.clone(),
        || stage.closed.clone(),
    );
    let text = |text: &str| Some(text.to_owned());
    let spawn = || SpawnAgentRequest {
        session_id: stage.session.clone(),
        agent_type: String::from("worker"),
        message: Some(String::from("work")),
        ..SpawnAgentRequest::default()
    };
    let long = "x".repeat(5_000);
    let huge = "x".repeat(1_100_000);

    refuses! { stage:
        create_session(CreateSessionRequest { cwd: "a/b".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "cwd \"a/b\" is relative; give an absolute path";
        create_session(CreateSessionRequest { cwd: format!("/{long}"), ..Default::default() })
            => InvalidArgument InvalidArgument "at most 4096 are allowed";
        create_session(CreateSessionRequest { limits: Some(Limits { max_depth: Some(99), ..Default::default() }), ..Default::default() })
            => InvalidArgument InvalidArgument "limits.max_depth 99 is more than this service allows (2)";
        create_session(CreateSessionRequest { sandbox: 77, ..Default::default() })
            => InvalidArgument InvalidArgument "sandbox";
        create_session(CreateSessionRequest { message: text(" "), ..Default::default() })
            => InvalidArgument InvalidInput "Empty message can't be sent to an agent";
        create_session(CreateSessionRequest { agent_type: "nobody".into(), ..Default::default() })
            => NotFound TemplateNotFound "missing agent template: nobody";
        create_session(CreateSessionRequest { labels: [(String::new(), String::new())].into(), ..Default::default() })
            => InvalidArgument InvalidArgument "a label has an empty key";

        get_session(GetSessionRequest::default()) => InvalidArgument InvalidArgument "session_id is required";
        get_session(GetSessionRequest { session_id: "x".into() }) => InvalidArgument InvalidArgument "invalid session_id \"x\"";
        get_session(GetSessionRequest { session_id: UNKNOWN.into() }) => NotFound SessionNotFound UNKNOWN;
        list_sessions(ListSessionsRequest { page_size: -1, ..Default::default() })
            => InvalidArgument InvalidArgument "page_size -1 is negative";
        list_sessions(ListSessionsRequest { page_token: "1-1-0".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "start again without it";
        close_session(CloseSessionRequest { session_id: UNKNOWN.into(), ..Default::default() }) => NotFound SessionNotFound UNKNOWN;
        update_session(UpdateSessionRequest::default()) => InvalidArgument InvalidArgument "session_id is required";

        spawn_agent(SpawnAgentRequest { session_id: String::new(), ..spawn() })
            => InvalidArgument InvalidArgument "give session_id or thread_id";
        spawn_agent(SpawnAgentRequest { parent_thread_id: UNKNOWN.into(), ..spawn() })
            => NotFound ThreadNotFound &format!("agent with id {UNKNOWN} not found");
        spawn_agent(SpawnAgentRequest { parent_thread_id: closed(), ..spawn() })
            => FailedPrecondition ThreadClosed &format!("agent with id {} is closed", stage.closed);
        spawn_agent(SpawnAgentRequest { message: None, ..spawn() })
            => InvalidArgument InvalidInput "Provide one of: message or items";
        spawn_agent(SpawnAgentRequest { items: vec![InputItem::default()], ..spawn() })
            => InvalidArgument InvalidInput "Provide either message or items, but not both";
        spawn_agent(SpawnAgentRequest { message: text(&huge), ..spawn() })
            => InvalidArgument InvalidArgument "at most 1048576 are allowed";
        spawn_agent(SpawnAgentRequest { agent_type: "Not a name".into(), ..spawn() })
            => InvalidArgument InvalidAgentType "invalid agent_type \"not a name\"";
        spawn_agent(SpawnAgentRequest { agent_name: "nobody".into(), ..spawn() })
            => InvalidArgument InvalidAgentName "unknown agent_name \"nobody\" for agent_type \"worker\"";
        spawn_agent(SpawnAgentRequest { expected_digest: "0".repeat(64), ..spawn() })
            => FailedPrecondition DigestMismatch "";
        spawn_agent(SpawnAgentRequest { label: long.clone(), ..spawn() })
            => InvalidArgument InvalidArgument "label has 5000 bytes; at most 128 are allowed";
        spawn_agent(SpawnAgentRequest { label: "\u{1b}[2J".into(), ..spawn() })
            => InvalidArgument InvalidArgument "label has control characters";
        spawn_agent(SpawnAgentRequest { working_directory: "here".into(), ..spawn() })
            => InvalidArgument InvalidArgument "give an absolute path";
        spawn_agent(SpawnAgentRequest { request_id: "x".repeat(200), ..spawn() })
            => InvalidArgument InvalidArgument "request_id has 200 bytes; at most 128";
        spawn_agent(SpawnAgentRequest { on_limit: 9, ..spawn() }) => InvalidArgument InvalidArgument "on_limit";

        send_input(SendInputRequest { message: text("x"), ..Default::default() })
            => InvalidArgument InvalidArgument "thread_id is required";
        send_input(SendInputRequest { thread_id: worker(), ..Default::default() })
            => InvalidArgument InvalidInput "Provide one of: message or items";
        send_input(SendInputRequest { thread_id: closed(), message: text("x"), ..Default::default() })
            => FailedPrecondition ThreadClosed &format!("agent with id {} is closed", stage.closed);
        send_input(SendInputRequest { thread_id: root(), message: text("x"), ..Default::default() })
            => FailedPrecondition IllegalTransition "its client executes it itself";
        interrupt_agent(InterruptAgentRequest { thread_id: UNKNOWN.into(), ..Default::default() })
            => NotFound ThreadNotFound UNKNOWN;
        interrupt_agent(InterruptAgentRequest { thread_id: closed(), ..Default::default() })
            => FailedPrecondition ThreadClosed "is closed";
        wait_agents(WaitAgentsRequest::default()) => InvalidArgument InvalidArgument "ids must be non-empty";
        wait_agents(WaitAgentsRequest { thread_ids: vec![worker()], timeout: Some(prost_types::Duration::default()), ..Default::default() })
            => InvalidArgument InvalidArgument "timeout_ms must be greater than zero";
        wait_agents(WaitAgentsRequest { thread_ids: vec!["x".into()], ..Default::default() })
            => InvalidArgument InvalidArgument "invalid thread_ids \"x\"";
        close_agent(CloseAgentRequest { thread_id: "x".into(), ..Default::default() })
            => InvalidArgument InvalidArgument "invalid thread_id \"x\"";
        close_agent(CloseAgentRequest { thread_id: UNKNOWN.into(), ..Default::default() })
            => NotFound ThreadNotFound &format!("agent with id {UNKNOWN} not found");
        close_agent(CloseAgentRequest { thread_id: worker(), deadline: Some(prost_types::Duration { seconds: 99, nanos: 0 }), ..Default::default() })
            => InvalidArgument InvalidArgument "deadline is more than 30 s";
        resume_agent(ResumeAgentRequest { thread_id: UNKNOWN.into(), ..Default::default() }) => NotFound ThreadNotFound UNKNOWN;
        set_thread_note(SetThreadNoteRequest { thread_id: worker(), thread_note: long.clone(), ..Default::default() })
            => InvalidArgument InvalidArgument "at most 1024 are allowed";
        get_thread(GetThreadRequest { thread_id: UNKNOWN.into(), ..Default::default() }) => NotFound ThreadNotFound UNKNOWN;
        get_thread(GetThreadRequest { session_id: UNKNOWN.into(), thread_id: worker() }) => NotFound SessionNotFound UNKNOWN;
        list_active_agents(ListActiveAgentsRequest { session_id: session(), scope: 9, ..Default::default() })
            => InvalidArgument InvalidArgument "scope";
        list_active_agents(ListActiveAgentsRequest { session_id: session(), statuses: vec![0], ..Default::default() })
            => InvalidArgument InvalidArgument "statuses";
        authorize_tool(AuthorizeToolRequest { thread_id: worker(), ..Default::default() })
            => InvalidArgument InvalidArgument "tool is required";
        get_quota(GetQuotaRequest::default()) => InvalidArgument InvalidArgument "give session_id or thread_id";
        watch_threads(WatchThreadsRequest { session_id: session(), kinds: vec![99], ..Default::default() })
            => InvalidArgument InvalidArgument "99 is no kind of event";
        watch_threads(WatchThreadsRequest { thread_id: UNKNOWN.into(), ..Default::default() }) => NotFound ThreadNotFound UNKNOWN;

        // A thread's token: its own subtree, its role's tools, one text whether the target exists or not.
        spawn_agent(stage.as_worker(spawn())) => PermissionDenied ToolDenied
            "tool \"spawn_agent\" is not allowed for agent_type \"worker\"";
        close_agent(stage.as_worker(CloseAgentRequest { thread_id: root(), ..Default::default() }))
            => PermissionDenied OutsideSubtree "Not permitted to close agents outside your subtree.";
        close_agent(stage.as_worker(CloseAgentRequest { thread_id: UNKNOWN.into(), ..Default::default() }))
            => PermissionDenied OutsideSubtree "Not permitted to close agents outside your subtree.";
        get_thread(stage.as_worker(GetThreadRequest { thread_id: root(), ..Default::default() }))
            => PermissionDenied OutsideSubtree "Not permitted to act on agents outside your subtree.";
        create_session(stage.as_worker(CreateSessionRequest::default())) => PermissionDenied NotPermitted "";
        list_sessions(stage.as_worker(ListSessionsRequest::default())) => PermissionDenied NotPermitted "";
    }

    // A token ends with its thread.
    let close = CloseAgentRequest {
        thread_id: worker(),
        wait: true,
        ..CloseAgentRequest::default()
    };
    stage.client.clone().close_agent(close).await.unwrap();
    refuses! { stage:
        get_thread(stage.as_worker(GetThreadRequest { thread_id: worker(), ..Default::default() }))
            => Unauthenticated Unauthenticated "missing, malformed or stale token";
    }

    // And it still works.
    let answer = stage.client.clone().spawn_agent(spawn()).await.unwrap().into_inner();
    assert_eq!(answer.thread.unwrap().agent_type, "worker");
}
