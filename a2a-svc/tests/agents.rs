//! Agents over a real registry and a real supervisor, with a runner that the tests control.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{fs, net::SocketAddr};

use a2a_svc::{
    Config, Options, Service, Upstream,
    pb::{
        CancelTaskRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse, Message, Part, Role,
        SendMessageConfiguration, SendMessageRequest, StreamResponse, SubscribeToTaskRequest, Task,
        TaskPushNotificationConfig, TaskState, a2a_service_client::A2aServiceClient, part::Content,
        send_message_response, stream_response::Payload,
    },
};
use prost_types::value::Kind as ValueKind;
use serde_json::{Value, json};
use svc_kit::{
    listen::url_of,
    secret::SecretToken,
    serve::{Listener, ServeLimits},
    shutdown::Shutdown,
    tls::{ServerTls, TlsOptions},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tonic::{Code, Request, Status, transport::Channel};
use tonic_types::StatusExt as _;
use troupe_client::tls::{self, ClientFiles};
use troupe_proto::supervisor::v1::{
    ArtifactReport, AskParentRequest, AuthorizeToolRequest, ListApprovalsRequest, ListSessionsRequest,
    ResolveApprovalRequest, Session, SpawnAgentRequest, TurnOutcome, runner_report::Kind as Report,
};
use troupe_tests::{
    authority::Authority,
    pair::{OPERATOR, Pair},
    receiver::Receiver,
    runner::{Attempt, Runner},
    within,
};

const ALICE: &str = "alice-alice-alice-alice";
const BOB: &str = "bob-bob-bob-bob-bob-bob";

/// Two roles and two callers. One of the callers may use only one of the roles.
const CONFIG: &str = "
agents:
  - {role: worker, approve_tools: [exec_command], deny_tools: [web_search], token_budget: 1000}
  - {role: explorer, sandbox: read-only}
callers:
  - {name: alice, token_file: alice}
  - {name: bob, token_file: bob, agents: [explorer], limits: {requests_per_minute: 5, max_contexts: 1}}
push_allow_private: true
";

/// The service, connected to a pair of a supervisor and a registry.
struct Port {
    address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<()>,
    files: TempDir,
}

impl Port {
    async fn serve(pair: &Pair) -> Self {
        Self::over(pair, CONFIG, tempfile::tempdir().unwrap()).await
    }

    async fn over(pair: &Pair, config: &str, files: TempDir) -> Self {
        Self::with_tls(pair, config, files, None).await
    }

    async fn with_tls(pair: &Pair, config: &str, files: TempDir, tls: Option<ServerTls>) -> Self {
        for (name, token) in [("alice", ALICE), ("bob", BOB)] {
            fs::write(files.path().join(name), token).unwrap();
        }
        let path = files.path().join("a2a.yaml");
        fs::write(&path, config).unwrap();
        let upstream = |address| Upstream {
            url: url_of(address),
            token: Some(SecretToken::parse(OPERATOR).unwrap().into()),
            tls: ClientFiles::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = Service::open(Options {
            config: Config::load(&path, tls.is_some()).unwrap(),
            supervisor: upstream(pair.supervisor_at()),
            registry: upstream(pair.registry_at()),
            push_directory: files.path().join("push"),
            address,
            is_https: tls.is_some(),
        })
        .unwrap();
        let shutdown = Shutdown::new();
        let listener = Listener::new(listener, tls);
        let serving = service.serve(listener, ServeLimits::default(), shutdown.clone());
        Self {
            address,
            shutdown,
            task: tokio::spawn(async move { serving.await.unwrap() }),
            files,
        }
    }

    /// Stops the service and returns its files.
    async fn stop(self) -> TempDir {
        self.shutdown.trigger();
        within("the end of the service", self.task).await.unwrap();
        self.files
    }

    async fn client(&self, token: &str) -> Caller {
        let channel = tonic::transport::Endpoint::from_shared(url_of(self.address)).unwrap();
        Caller {
            client: A2aServiceClient::new(channel.connect().await.unwrap()),
            token: token.to_owned(),
        }
    }

    /// Makes a request over HTTP/1.1. Returns the status, the head and the body.
    async fn http(&self, head: &str, body: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let request = format!("{head}\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        within("a response", stream.read_to_string(&mut response))
            .await
            .unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    async fn json_rpc(&self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        self.raw_json_rpc(&request.to_string()).await
    }

    async fn raw_json_rpc(&self, body: &str) -> Value {
        let head = format!(
            "POST /a2a/worker HTTP/1.1\r\ncontent-type: application/json\r\na2a-version: 1.0\r\nauthorization: Bearer {ALICE}"
        );
        serde_json::from_str(&self.http(&head, body).await.2).unwrap()
    }
}

/// A caller over gRPC.
#[derive(Clone)]
struct Caller {
    client: A2aServiceClient<Channel>,
    token: String,
}

impl Caller {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("a2a-version", "1.0".parse().unwrap());
        metadata.insert("authorization", format!("Bearer {}", self.token).parse().unwrap());
        request
    }

    async fn try_send(&self, message: Message, return_immediately: bool) -> Result<Task, Status> {
        self.try_send_to("", message, return_immediately).await
    }

    async fn try_send_to(&self, tenant: &str, message: Message, return_immediately: bool) -> Result<Task, Status> {
        let request = self.request(SendMessageRequest {
            tenant: tenant.to_owned(),
            message: Some(message),
            configuration: Some(SendMessageConfiguration {
                return_immediately,
                ..SendMessageConfiguration::default()
            }),
            metadata: None,
        });
        let response = within("SendMessage", self.client.clone().send_message(request)).await?;
        match response.into_inner().payload.unwrap() {
            send_message_response::Payload::Task(task) => Ok(task),
            send_message_response::Payload::Message(message) => panic!("a task, not {message:?}"),
        }
    }

    /// Sends a message and returns the task at once.
    async fn send(&self, message: Message) -> Task {
        self.try_send(message, true).await.unwrap()
    }

    async fn get(&self, id: &str) -> Result<Task, Status> {
        let request = self.request(GetTaskRequest {
            id: id.to_owned(),
            ..GetTaskRequest::default()
        });
        within("GetTask", self.client.clone().get_task(request))
            .await
            .map(tonic::Response::into_inner)
    }

    async fn list(&self, request: ListTasksRequest) -> ListTasksResponse {
        let request = self.request(request);
        let listed = within("ListTasks", self.client.clone().list_tasks(request)).await;
        listed.unwrap().into_inner()
    }

    async fn cancel(&self, id: &str) -> Result<Task, Status> {
        let request = self.request(CancelTaskRequest {
            id: id.to_owned(),
            ..CancelTaskRequest::default()
        });
        within("CancelTask", self.client.clone().cancel_task(request))
            .await
            .map(tonic::Response::into_inner)
    }

    async fn subscribe(&self, id: &str, after: Option<&str>) -> Result<tonic::Streaming<StreamResponse>, Status> {
        let mut request = self.request(SubscribeToTaskRequest {
            id: id.to_owned(),
            ..SubscribeToTaskRequest::default()
        });
        if let Some(after) = after {
            request
                .metadata_mut()
                .insert("troupe-after-sequence", after.parse().unwrap());
        }
        let stream = within("SubscribeToTask", self.client.clone().subscribe_to_task(request)).await;
        stream.map(tonic::Response::into_inner)
    }
}

fn message(id: &str, text: &str) -> Message {
    Message {
        message_id: id.to_owned(),
        role: Role::User.into(),
        parts: vec![Part {
            content: Some(Content::Text(text.to_owned())),
            ..Part::default()
        }],
        ..Message::default()
    }
}

fn in_task(task: &Task, id: &str, text: &str) -> Message {
    Message {
        task_id: task.id.clone(),
        ..message(id, text)
    }
}

fn in_context(task: &Task, id: &str, text: &str) -> Message {
    Message {
        context_id: task.context_id.clone(),
        ..message(id, text)
    }
}

fn state(task: &Task) -> TaskState {
    task.status.as_ref().unwrap().state()
}

fn text(part: &Part) -> &str {
    match part.content.as_ref().unwrap() {
        Content::Text(text) => text,
        other => panic!("text, not {other:?}"),
    }
}

fn history(task: &Task) -> Vec<(Role, &str)> {
    task.history
        .iter()
        .map(|message| (message.role(), text(&message.parts[0])))
        .collect()
}

fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}

/// Returns the session of a context.
async fn session(pair: &Pair, context: &str) -> Session {
    let listed = pair
        .operator()
        .list_sessions(ListSessionsRequest::default())
        .await
        .unwrap();
    let mut sessions = listed.into_inner().sessions.into_iter();
    sessions.find(|session| session.session_id == context).unwrap()
}

async fn root(pair: &Pair, context: &str) -> String {
    session(pair, context).await.root_thread_id
}

/// Runs the turn of a new task.
async fn run(pair: &Pair, runner: &mut Runner, task: &Task) -> Attempt {
    let root = root(pair, &task.context_id).await;
    runner.run(&root).await
}

/// Begins the next turn of an attempt.
async fn next_turn(runner: &mut Runner, attempt: &Attempt) -> Attempt {
    let turn = runner.turn_of(attempt).await.turn;
    let attempt = Attempt {
        turn,
        ..attempt.clone()
    };
    runner.begin(&attempt).await;
    attempt
}

async fn setup() -> (Pair, Port, Runner, Caller) {
    let pair = Pair::start().await;
    let port = Port::serve(&pair).await;
    let runner = Runner::attach(&pair, "r").await;
    let alice = port.client(ALICE).await;
    (pair, port, runner, alice)
}

/// Returns the setup with a task whose first turn runs.
async fn setup_working() -> (Pair, Port, Runner, Caller, Task, Attempt) {
    let (pair, port, mut runner, alice) = setup().await;
    let task = alice.send(message("m1", "Fix it")).await;
    let attempt = run(&pair, &mut runner, &task).await;
    (pair, port, runner, alice, task, attempt)
}

/// Ends a turn with a question to the caller.
async fn ask(pair: &Pair, runner: &mut Runner, attempt: &Attempt, task: &Task) {
    let question = AskParentRequest {
        session_id: task.context_id.clone(),
        thread_id: attempt.thread.clone(),
        question: String::from("Which one?"),
        ..AskParentRequest::default()
    };
    pair.operator().ask_parent(question).await.unwrap();
    runner.complete(attempt, "I asked.").await;
}

#[tokio::test]
async fn message_becomes_turn_with_result() {
    let (pair, _port, mut runner, alice) = setup().await;
    let task = alice.send(message("m1", "Fix it")).await;
    assert!(matches!(state(&task), TaskState::Submitted | TaskState::Working));
    let attempt = run(&pair, &mut runner, &task).await;
    assert_eq!(state(&alice.get(&task.id).await.unwrap()), TaskState::Working);
    runner.complete(&attempt, "Fixed.").await;
    let done = alice.get(&task.id).await.unwrap();
    assert_eq!(state(&done), TaskState::Completed);
    assert_eq!(text(&done.artifacts[0].parts[0]), "Fixed.");
    assert_eq!(history(&done), [(Role::User, "Fix it"), (Role::Agent, "Fixed.")]);

    // A message to an ended task is rejected; one in its context is the next task, and the agent is the same thread.
    let refused = alice
        .try_send(in_task(&task, "m2", "And that"), true)
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::FailedPrecondition, "UNSUPPORTED_OPERATION")
    );
    let second = alice.send(in_context(&task, "m3", "And that")).await;
    assert_eq!(second.context_id, task.context_id);
    assert_ne!(second.id, task.id);
    let attempt = next_turn(&mut runner, &attempt).await;
    runner.end(&attempt, TurnOutcome::Errored, "no disk").await;
    let failed = alice.get(&second.id).await.unwrap();
    assert_eq!(state(&failed), TaskState::Failed);
    assert_eq!(text(&failed.status.unwrap().message.unwrap().parts[0]), "no disk");

    let listed = alice.list(ListTasksRequest::default()).await;
    let ids: Vec<_> = listed.tasks.iter().map(|task| task.id.clone()).collect();
    assert_eq!(ids, [second.id.clone(), task.id.clone()], "newest first");
    assert!(
        listed
            .tasks
            .iter()
            .all(|task| task.artifacts.is_empty() && task.history.is_empty())
    );
    let page = alice
        .list(ListTasksRequest {
            page_size: Some(1),
            ..ListTasksRequest::default()
        })
        .await;
    assert_eq!((page.tasks.len(), page.total_size), (1, 2));
    let rest = alice
        .list(ListTasksRequest {
            page_token: page.next_page_token,
            status: TaskState::Completed.into(),
            include_artifacts: Some(true),
            ..ListTasksRequest::default()
        })
        .await;
    assert_eq!(
        (rest.tasks[0].id.as_str(), rest.next_page_token.as_str()),
        (task.id.as_str(), "")
    );
    assert_eq!(rest.tasks[0].artifacts.len(), 1);
}

#[tokio::test]
async fn blocking_message_waits_for_end_of_task() {
    let (pair, _port, mut runner, alice) = setup().await;
    let sender = alice.clone();
    let sending = tokio::spawn(async move { sender.try_send(message("m1", "Fix it"), false).await.unwrap() });
    let start = runner.start().await;
    let attempt = Attempt::of(&start);
    runner.begin(&attempt).await;
    runner.complete(&attempt, r#"{"files": 3}"#).await;
    let task = sending.await.unwrap();
    assert_eq!(state(&task), TaskState::Completed);
    assert!(matches!(task.artifacts[0].parts[0].content, Some(Content::Data(_))));
    assert_eq!(session(&pair, &task.context_id).await.root_thread_id, start.thread_id);
}

#[tokio::test]
async fn answer_to_question_continues_task() {
    let (pair, _port, mut runner, alice, task, attempt) = setup_working().await;
    ask(&pair, &mut runner, &attempt, &task).await;
    let asking = alice.get(&task.id).await.unwrap();
    assert_eq!(state(&asking), TaskState::InputRequired);
    assert_eq!(text(&asking.status.unwrap().message.unwrap().parts[0]), "Which one?");

    // A context has at most one task that has not ended.
    let refused = alice
        .try_send(in_context(&task, "m2", "Other work"), true)
        .await
        .unwrap_err();
    assert_eq!(reason(&refused), "UNSUPPORTED_OPERATION");

    let same = alice.send(in_task(&task, "m3", "The first")).await;
    assert_eq!(same.id, task.id);
    let attempt = next_turn(&mut runner, &attempt).await;
    runner.complete(&attempt, "Fixed.").await;
    let done = alice.get(&task.id).await.unwrap();
    assert_eq!(state(&done), TaskState::Completed);
    assert_eq!(
        history(&done),
        [
            (Role::User, "Fix it"),
            (Role::Agent, "I asked."),
            (Role::User, "The first"),
            (Role::Agent, "Fixed.")
        ]
    );
}

#[tokio::test]
async fn question_can_be_canceled() {
    let (pair, _port, mut runner, alice, task, attempt) = setup_working().await;
    ask(&pair, &mut runner, &attempt, &task).await;
    let canceled = alice.cancel(&task.id).await.unwrap();
    assert_eq!(state(&canceled), TaskState::Canceled);
    let again = alice.cancel(&task.id).await.unwrap_err();
    assert_eq!(reason(&again), "TASK_NOT_CANCELABLE");
    let next = alice.send(in_context(&task, "m2", "Other work")).await;
    assert_ne!(next.id, task.id);
}

#[tokio::test]
async fn cancellation_interrupts_turn_and_frees_context() {
    let (_pair, _port, mut runner, alice, task, attempt) = setup_working().await;
    let canceled = alice.cancel(&task.id).await.unwrap();
    assert_eq!(state(&canceled), TaskState::Canceled);
    assert_eq!(runner.interrupt_of(&attempt).await.turn, attempt.turn);
    // The next task begins while the turn still stops. The end of that turn does not concern the next task.
    let next = alice.send(in_context(&task, "m2", "Other work")).await;
    runner.end(&attempt, TurnOutcome::Interrupted, "").await;
    let attempt = next_turn(&mut runner, &attempt).await;
    assert_eq!(state(&alice.get(&next.id).await.unwrap()), TaskState::Working);
    runner.complete(&attempt, "Other.").await;
    assert_eq!(state(&alice.get(&task.id).await.unwrap()), TaskState::Canceled);
    assert_eq!(state(&alice.get(&next.id).await.unwrap()), TaskState::Completed);
}

#[tokio::test]
async fn approval_is_decided_by_operators_only() {
    let (pair, _port, _runner, alice, task, attempt) = setup_working().await;
    let call = AuthorizeToolRequest {
        session_id: task.context_id.clone(),
        thread_id: attempt.thread.clone(),
        tool: String::from("exec_command"),
        arguments_json: String::from(r#"{"cmd": "make"}"#),
        ..AuthorizeToolRequest::default()
    };
    pair.operator().authorize_tool(call).await.unwrap();
    let waiting = alice.get(&task.id).await.unwrap();
    assert_eq!(state(&waiting), TaskState::AuthRequired);
    let why = waiting.status.unwrap().message.unwrap();
    assert!(text(&why.parts[0]).contains("operator"), "{why:?}");

    // A message of the caller does not grant the approval.
    let blocked = alice.try_send(in_task(&task, "m2", "I approve"), false).await.unwrap();
    assert_eq!(state(&blocked), TaskState::AuthRequired);

    let request = ListApprovalsRequest {
        session_id: task.context_id.clone(),
        ..ListApprovalsRequest::default()
    };
    let approvals = pair
        .operator()
        .list_approvals(request)
        .await
        .unwrap()
        .into_inner()
        .approvals;
    let decision = ResolveApprovalRequest {
        session_id: task.context_id.clone(),
        approval_id: approvals[0].approval_id.clone(),
        grant: true,
        ..ResolveApprovalRequest::default()
    };
    pair.operator().resolve_approval(decision).await.unwrap();
    assert_eq!(state(&alice.get(&task.id).await.unwrap()), TaskState::Working);
}

/// Returns the kind and the position of a response.
fn seen(response: &StreamResponse) -> (String, String) {
    let (kind, metadata) = match response.payload.as_ref().unwrap() {
        Payload::Task(task) => (format!("task {}", state(task).as_str_name()), &task.metadata),
        Payload::StatusUpdate(update) => (
            update.status.as_ref().unwrap().state().as_str_name().to_owned(),
            &update.metadata,
        ),
        Payload::ArtifactUpdate(update) => (
            format!("artifact {}", update.artifact.as_ref().unwrap().name),
            &update.metadata,
        ),
        Payload::Message(_) => panic!("no message"),
    };
    let position = &metadata.as_ref().unwrap().fields["troupe/sequence"];
    let Some(ValueKind::StringValue(position)) = &position.kind else {
        panic!("{position:?}")
    };
    (kind, position.clone())
}

async fn all(mut stream: tonic::Streaming<StreamResponse>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    while let Some(response) = within("a response", stream.message()).await.unwrap() {
        all.push(seen(&response));
    }
    all
}

fn kinds(all: &[(String, String)]) -> Vec<&str> {
    all.iter().map(|(kind, _)| kind.as_str()).collect()
}

#[tokio::test]
async fn streams_have_equal_updates_and_resume_by_sequence() {
    let (pair, port, mut runner, alice) = setup().await;
    let request = alice.request(SendMessageRequest {
        message: Some(message("m1", "Fix it")),
        ..SendMessageRequest::default()
    });
    let mut first = alice
        .client
        .clone()
        .send_streaming_message(request)
        .await
        .unwrap()
        .into_inner();
    let began = within("the task", first.message()).await.unwrap().unwrap();
    let Some(Payload::Task(task)) = &began.payload else {
        panic!("{began:?}")
    };
    let attempt = run(&pair, &mut runner, task).await;
    let second = alice.subscribe(&task.id, None).await.unwrap();
    runner
        .report(
            &attempt,
            Report::Artifact(ArtifactReport {
                name: String::from("output.txt"),
                kind: String::from("report"),
                media_type: String::from("text/plain"),
                data: "some text".into(),
                turn: attempt.turn,
                ..ArtifactReport::default()
            }),
        )
        .await;
    runner.complete(&attempt, "Fixed.").await;

    let first = all(first).await;
    let expected = [
        "TASK_STATE_WORKING",
        "artifact output.txt",
        "artifact result",
        "TASK_STATE_COMPLETED",
    ];
    assert_eq!(kinds(&first), expected);
    let second = all(second).await;
    assert_eq!(kinds(&second)[0], "task TASK_STATE_WORKING");
    assert_eq!(second[1..], first[1..]);

    // A subscription from any position misses no update. A position between two updates of one event repeats the first
    // one.
    let ended = alice.subscribe(&task.id, None).await.unwrap_err();
    assert_eq!(reason(&ended), "UNSUPPORTED_OPERATION");
    let resumed = all(alice.subscribe(&task.id, Some(&first[1].1)).await.unwrap()).await;
    assert_eq!(kinds(&resumed)[1..], expected[2..]);
    let resumed = all(alice.subscribe(&task.id, Some(&first[2].1)).await.unwrap()).await;
    assert_eq!(kinds(&resumed)[1..], expected[2..]);
    let resumed = all(alice.subscribe(&task.id, Some(&first[3].1)).await.unwrap()).await;
    assert_eq!(kinds(&resumed), ["task TASK_STATE_COMPLETED"]);

    // The same over server-sent events.
    let head = format!(
        "POST /a2a/worker/tasks/{}:subscribe HTTP/1.1\r\na2a-version: 1.0\r\nauthorization: Bearer {ALICE}\r\nlast-event-id: {}",
        task.id, first[1].1
    );
    let (status, head, body) = port.http(&head, "").await;
    assert_eq!(status, 200);
    for header in [
        "content-type: text/event-stream",
        "cache-control: no-store",
        "x-accel-buffering: no",
    ] {
        assert!(head.contains(header), "{head}");
    }
    let events: Vec<Value> = body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(events.len(), 3, "{body}");
    let ids = body.lines().filter(|line| line.starts_with("id: "));
    assert_eq!(ids.count(), 3, "{body}");
    assert_eq!(events[2]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    let file = alice.get(&task.id).await.unwrap().artifacts[0].parts[0].clone();
    assert_eq!((text(&file), file.filename.as_str()), ("some text", "output.txt"));
}

#[tokio::test]
async fn files_links_and_large_artifacts_have_their_form() {
    const LARGE: usize = 5 * 1024 * 1024 / 2;
    let (_pair, _port, mut runner, alice, task, attempt) = setup_working().await;
    let mut stream = alice.subscribe(&task.id, None).await.unwrap();
    for (name, kind, data) in [
        ("a.txt", "file", b"some text".to_vec()),
        ("b.txt", "link", b"https://example.com/b.txt".to_vec()),
        ("c.txt", "file", vec![b'c'; LARGE]),
    ] {
        let artifact = ArtifactReport {
            turn: attempt.turn,
            name: name.to_owned(),
            kind: kind.to_owned(),
            media_type: String::from("text/plain"),
            data: data.into(),
            ..ArtifactReport::default()
        };
        runner.report(&attempt, Report::Artifact(artifact)).await;
    }
    runner.complete(&attempt, "").await;

    let (mut pieces, mut positions) = (Vec::new(), Vec::new());
    while let Some(response) = within("a response", stream.message()).await.unwrap() {
        positions.push(seen(&response).1.parse::<u64>().unwrap());
        if let Some(Payload::ArtifactUpdate(update)) = response.payload {
            pieces.push((update.append, update.last_chunk, update.artifact.unwrap()));
        }
    }
    let content = |index: usize| pieces[index].2.parts[0].content.clone().unwrap();
    assert_eq!(content(0), Content::Raw("some text".into()));
    assert_eq!(content(1), Content::Url(String::from("https://example.com/b.txt")));
    let flags: Vec<_> = pieces.iter().map(|(append, last, _)| (*append, *last)).collect();
    assert_eq!(
        flags,
        [
            (false, true),
            (false, true),
            (false, false),
            (true, false),
            (true, true)
        ]
    );
    let sizes = (2..5).map(|index| match content(index) {
        Content::Raw(data) => data.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(sizes.sum::<usize>(), LARGE);
    // A reader that continues after the first piece gets all of them again.
    let [.., before, first, second, last, _] = positions.as_slice() else {
        panic!()
    };
    assert_eq!((first, second), (before, before));
    assert!(last > before);

    let done = alice.get(&task.id).await.unwrap();
    assert_eq!(done.artifacts.len(), 3);
    assert_eq!(
        text(&done.artifacts[2].parts[0]),
        "c.txt has 2621440 bytes, which is too large to be part of a task; a stream of the task has it"
    );
}

#[tokio::test]
async fn task_shows_threads_below_its_agent() {
    let (pair, _port, mut runner, alice, task, attempt) = setup_working().await;
    let spawned = SpawnAgentRequest {
        session_id: task.context_id.clone(),
        parent_thread_id: attempt.thread.clone(),
        agent_type: String::from("explorer"),
        message: Some(String::from("Look.")),
        ..SpawnAgentRequest::default()
    };
    let child = pair.operator().spawn_agent(spawned).await.unwrap().into_inner();
    let child = child.thread.unwrap().thread_id;
    runner.run(&child).await;
    let metadata = alice.get(&task.id).await.unwrap().metadata.unwrap();
    let Some(ValueKind::ListValue(tree)) = metadata.fields["troupe/tree"].kind.clone() else {
        panic!()
    };
    let [thread] = tree.values.as_slice() else {
        panic!("{tree:?}")
    };
    let Some(ValueKind::StructValue(thread)) = &thread.kind else {
        panic!()
    };
    let field = |name: &str| match thread.fields[name].kind.as_ref().unwrap() {
        ValueKind::StringValue(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((field("threadId"), field("parentThreadId")), (child, attempt.thread));
    assert_eq!(
        (field("role").as_str(), field("state").as_str()),
        ("explorer", "TASK_STATE_WORKING")
    );
}

#[tokio::test]
async fn certificate_names_its_caller() {
    let pair = Pair::start().await;
    let (files, authority) = (tempfile::tempdir().unwrap(), Authority::default());
    let ca = authority.publish(files.path(), "ca.crt");
    let (cert, key) = authority.server(files.path(), "server");
    let options = TlsOptions {
        tls_cert: Some(cert),
        tls_key: Some(key),
        tls_client_ca: Some(ca.clone()),
    };
    let identity = |name: &str, uri: &str| Some(authority.client(files.path(), name, uri));
    let carol = identity("carol", "spiffe://example.com/troupe/caller/carol");
    let others = [
        None,
        identity("dave", "spiffe://example.com/troupe/caller/dave"),
        identity("operator", "spiffe://example.com/troupe/admin/carol"),
    ];
    let server = options.load().unwrap().map(ServerTls::with_http1);
    let config = "agents: [{role: explorer}]\ncallers: [{name: carol}]\n";
    let port = Port::with_tls(&pair, config, tempfile::tempdir().unwrap(), server).await;
    let url = url_of(port.address).replace("http:", "https:");
    let client = |identity| {
        let endpoint = tonic::transport::Endpoint::from_shared(url.clone()).unwrap();
        let files = ClientFiles {
            authorities: Some(ca.clone()),
            identity,
        };
        A2aServiceClient::new(tls::channel(&endpoint, &files))
    };
    let request = || {
        let mut request = Request::new(SendMessageRequest {
            message: Some(message("m1", "Look")),
            configuration: Some(SendMessageConfiguration {
                return_immediately: true,
                ..SendMessageConfiguration::default()
            }),
            ..SendMessageRequest::default()
        });
        request.metadata_mut().insert("a2a-version", "1.0".parse().unwrap());
        request
    };
    let sent = within("SendMessage", client(carol).send_message(request()))
        .await
        .unwrap();
    let Some(send_message_response::Payload::Task(task)) = sent.into_inner().payload else {
        panic!()
    };
    let labels = session(&pair, &task.context_id).await.labels;
    assert_eq!(labels["troupe.a2a/caller"], "carol");
    for identity in others {
        let refused = within("a refusal", client(identity).send_message(request())).await;
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn repeated_message_is_one_task() {
    let (pair, port, _runner, alice) = setup().await;
    let task = alice.send(message("m1", "Fix it")).await;
    let same = alice.send(message("m1", "Fix it")).await;
    assert_eq!(same.id, task.id);
    let another = alice.send(message("m2", "Fix it")).await;
    assert_ne!(another.id, task.id);
    // The supervisor recognizes the message after a restart of the service.
    let port = Port::over(&pair, CONFIG, port.stop().await).await;
    let alice = port.client(ALICE).await;
    let same = alice.send(message("m1", "Fix it")).await;
    assert_eq!(same.id, task.id);
}

#[tokio::test]
async fn tasks_survive_restart_of_all_services() {
    let (mut pair, port, mut runner, alice) = setup().await;
    let task = alice.send(message("m1", "Fix it")).await;
    let attempt = run(&pair, &mut runner, &task).await;
    runner.complete(&attempt, "Fixed.").await;
    let open = alice.send(in_context(&task, "m2", "More")).await;
    let files = port.stop().await;
    pair.restart().await;
    let port = Port::over(&pair, CONFIG, files).await;
    let alice = port.client(ALICE).await;
    let done = alice.get(&task.id).await.unwrap();
    assert_eq!(state(&done), TaskState::Completed);
    assert_eq!(text(&done.artifacts[0].parts[0]), "Fixed.");
    assert_eq!(state(&alice.get(&open.id).await.unwrap()), TaskState::Submitted);
    let listed = alice.list(ListTasksRequest::default()).await;
    assert_eq!(listed.total_size, 2);
}

#[tokio::test]
async fn callers_see_only_their_own_tasks() {
    let (_pair, port, _runner, alice) = setup().await;
    let task = alice.send(message("m1", "Fix it")).await;
    let bob = port.client(BOB).await;
    let explorer = |message| bob.try_send_to("explorer", message, true);

    // Bob may not use the default agent, and cannot see Alice's task.
    let denied = bob.try_send(message("b1", "Hello"), true).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    let mut request = bob.request(GetTaskRequest {
        id: task.id.clone(),
        ..GetTaskRequest::default()
    });
    request.get_mut().tenant = String::from("explorer");
    let missing = bob.client.clone().get_task(request).await.unwrap_err();
    assert_eq!(
        (missing.code(), reason(&missing).as_str()),
        (Code::NotFound, "TASK_NOT_FOUND")
    );
    assert!(explorer(in_context(&task, "b2", "Hello")).await.is_err());

    // Bob first reaches his limit of one context, then his rate.
    let first = explorer(message("b3", "Hello")).await.unwrap();
    assert_ne!(first.context_id, task.context_id);
    let full = explorer(message("b4", "Hello")).await.unwrap_err();
    assert_eq!(reason(&full), "OVERLOADED");
    let fast = explorer(message("b5", "Hello")).await.unwrap_err();
    assert_eq!(
        (fast.code(), reason(&fast).as_str()),
        (Code::ResourceExhausted, "RATE_LIMITED")
    );

    for token in ["wrong-wrong-wrong-wrong", ""] {
        let stranger = port.client(token).await;
        let refused = stranger.try_send(message("s1", "Hello"), true).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn context_has_limits_of_its_agent() {
    let (pair, _port, _runner, alice) = setup().await;
    let task = alice.send(message("m1", "Fix it")).await;
    let session = session(&pair, &task.context_id).await;
    assert_eq!(session.approve_tools, ["exec_command"]);
    assert_eq!(session.tool_ceiling.unwrap().deny_list, ["web_search"]);
    assert_eq!(session.budget.unwrap().tokens, 1000);
    assert_eq!(session.labels["troupe.a2a/caller"], "alice");
}

#[tokio::test]
async fn push_notifications_continue_after_restart() {
    let (pair, port, mut runner, alice) = setup().await;
    let receiver = Receiver::start().await;
    let task = alice.send(message("m1", "Fix it")).await;
    let config = json!({
        "taskId": task.id, "id": "c", "url": receiver.url(), "token": "t",
        "authentication": {"scheme": "Bearer", "credentials": "secret"}
    });
    let created = port.json_rpc("CreateTaskPushNotificationConfig", config).await;
    assert_eq!(created["result"]["id"], "c");
    assert!(!created.to_string().contains("secret"), "{created}");

    let attempt = run(&pair, &mut runner, &task).await;
    // The receiver refuses the first attempt and accepts the second one.
    receiver.next(500).await;
    let working = receiver.next(200).await;
    assert_eq!(working.header("authorization"), "Bearer secret");
    assert_eq!(working.header("x-a2a-notification-token"), "t");
    assert_eq!(working.json()["statusUpdate"]["status"]["state"], "TASK_STATE_WORKING");
    let port = Port::over(&pair, CONFIG, port.stop().await).await;
    runner.complete(&attempt, "Fixed.").await;
    let mut states = Vec::new();
    while states.last().is_none_or(|state| state != "TASK_STATE_COMPLETED") {
        let update = receiver.next(200).await.json();
        states.push(match update.get("artifactUpdate") {
            Some(_) => String::from("artifact"),
            None => update["statusUpdate"]["status"]["state"].as_str().unwrap().to_owned(),
        });
    }
    // The stop may have come before the acceptance was stored. In that case, the update is sent again.
    states.retain(|state| state != "TASK_STATE_WORKING");
    assert_eq!(states, ["artifact", "TASK_STATE_COMPLETED"]);

    let named = json!({"taskId": task.id, "id": "c"});
    let deleted = port.json_rpc("DeleteTaskPushNotificationConfig", named.clone()).await;
    assert_eq!(deleted["result"], json!({}));
    let missing = port.json_rpc("GetTaskPushNotificationConfig", named).await;
    assert_eq!(missing["error"]["data"][0]["reason"], "NOT_FOUND");
}

#[tokio::test]
async fn private_push_targets_are_rejected_by_default() {
    let pair = Pair::start().await;
    let config = CONFIG.replace("push_allow_private: true", "");
    let port = Port::over(&pair, &config, tempfile::tempdir().unwrap()).await;
    let alice = port.client(ALICE).await;
    let task = alice.send(message("m1", "Fix it")).await;
    for url in [
        "http://127.0.0.1:1/",
        "http://localhost/",
        "ftp://example.com",
        "no url",
    ] {
        let request = alice.request(TaskPushNotificationConfig {
            task_id: task.id.clone(),
            url: url.to_owned(),
            ..TaskPushNotificationConfig::default()
        });
        let mut client = alice.client.clone();
        let refused = client.create_task_push_notification_config(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{url}");
    }
}

#[tokio::test]
async fn invalid_requests_have_clear_errors() {
    let (_pair, port, _runner, _alice) = setup().await;
    for (body, code) in [
        ("{", -32700),
        ("[]", -32600),
        (r#"{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}"#, -32600),
        (r#"{"jsonrpc": "2.0", "id": {}, "method": "GetTask"}"#, -32600),
    ] {
        let answer = port.raw_json_rpc(body).await;
        assert_eq!(answer["error"]["code"], code, "{body}: {answer}");
    }
    for (method, params, code) in [
        ("Nothing", json!({}), -32601),
        ("GetTask", json!([]), -32602),
        ("SendMessage", json!({}), -32602),
        ("SendMessage", json!({"message": 1}), -32602),
        ("GetTask", json!({"id": "x"}), -32001),
        ("GetTask", json!({"tenant": "explorer", "id": "x"}), -32602),
        ("ListTasks", json!({"pageSize": 0}), -32602),
        ("ListTasks", json!({"status": "DONE"}), -32602),
        ("ListTasks", json!({"pageToken": "x"}), -32602),
    ] {
        let answer = port.json_rpc(method, params).await;
        assert_eq!(answer["error"]["code"], code, "{method}: {answer}");
    }
    let auth = format!("authorization: Bearer {ALICE}");
    let large = format!("{{\"a\": \"{}\"}}", "x".repeat(3 * 1024 * 1024));
    let (version, json) = ("a2a-version: 1.0", "content-type: application/json");
    for (request, headers, body, status) in [
        ("GET /a2a/worker/tasks/x", &[version, &auth][..], "", 404),
        ("GET /a2a/worker/tasks/x", &[&auth], "", 400),
        ("GET /a2a/worker/tasks?A2A-Version=1.0", &[&auth], "", 200),
        ("GET /a2a/worker/tasks?A2A-Version=1.0", &[], "", 401),
        ("GET /a2a/other/tasks?A2A-Version=1.0", &[&auth], "", 403),
        ("GET /a2a/other/.well-known/agent-card.json", &[], "", 404),
        ("GET /.well-known/agent-card.json", &[], "", 200),
        ("POST /a2a/worker/message:send", &[version, &auth], "{}", 400),
        ("POST /a2a/worker/message:send", &[version, json, &auth], &large, 413),
    ] {
        let request = format!("{request} HTTP/1.1");
        let head = [&[request.as_str()][..], headers].concat().join("\r\n");
        let (found, _, answer) = port.http(&head, body).await;
        assert_eq!(found, status, "{head}: {answer}");
    }
}

#[tokio::test]
async fn body_of_unauthenticated_request_is_not_read() {
    let (_pair, port, _runner, _alice) = setup().await;
    for head in [
        "POST /a2a/worker HTTP/1.1\r\ncontent-type: application/json",
        "POST /a2a/worker/message:send HTTP/1.1\r\nauthorization: Bearer wrong-wrong-wrong-wrong",
    ] {
        let mut stream = TcpStream::connect(port.address).await.unwrap();
        let request = format!("{head}\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n{{");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        within("an answer", stream.read_exact(&mut start)).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 401");
    }
}

#[tokio::test]
async fn browsers_need_token() {
    let pair = Pair::start().await;
    let config = "agents: [{role: worker}]\nanonymous: {}\n";
    let port = Port::over(&pair, config, tempfile::tempdir().unwrap()).await;
    let list = "GET /a2a/worker/tasks HTTP/1.1\r\na2a-version: 1.0";
    assert_eq!(port.http(list, "").await.0, 200);
    let from_page = format!("{list}\r\norigin: https://example.com");
    assert_eq!(port.http(&from_page, "").await.0, 403);
    let form = "POST /a2a/worker HTTP/1.1\r\na2a-version: 1.0\r\ncontent-type: text/plain";
    let (_, _, answer) = port.http(form, "{}").await;
    assert!(answer.contains("-32005"), "{answer}");
}

#[tokio::test]
async fn cards_have_no_secrets_and_can_be_cached() {
    let (_pair, port, _runner, alice) = setup().await;
    let (_, head, body) = port
        .http("GET /a2a/explorer/.well-known/agent-card.json HTTP/1.1", "")
        .await;
    let card: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(card["name"], "explorer");
    assert_eq!(
        card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"],
        "Bearer"
    );
    assert!(!body.contains("tokenBudget") && !body.contains("TokenBudget"), "{body}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let again = format!("GET /a2a/explorer/.well-known/agent-card.json HTTP/1.1\r\nif-none-match: {tag}");
    assert_eq!(port.http(&again, "").await.0, 304);

    let request = alice.request(a2a_svc::pb::GetExtendedAgentCardRequest::default());
    let extended = alice
        .client
        .clone()
        .get_extended_agent_card(request)
        .await
        .unwrap()
        .into_inner();
    let extensions = extended.capabilities.unwrap().extensions;
    let limits = extensions.last().unwrap().params.clone().unwrap();
    assert!(limits.fields.contains_key("contextTokenBudget"), "{limits:?}");
}
