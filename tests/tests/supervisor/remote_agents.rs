//! Remote agents as threads: the A2A port of one pair is the remote agent of the threads of another pair. The tests
//! control the runner behind the port.

use std::fs;

use a2a_svc::{Config, Options, Service, Upstream};
use serde_json::Value;
use svc_kit::{listen::url_of, secret::SecretToken, serve::ServeLimits, shutdown::Shutdown};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    task::{JoinHandle, yield_now},
};
use tokio_util::sync::CancellationToken;
use troupe_client::tls::ClientFiles;
use troupe_proto::supervisor::v1::{
    Artifact, ArtifactReport, AskParentRequest, CloseSessionRequest, ConditionKind, ListTranscriptRequest, StatusKind,
    ThreadStatus, TranscriptKind, Turn, TurnOutcome, input_item::Item, runner_report::Kind as Report,
};
use troupe_runner::{Programs, RunnerConfig};
use troupe_tests::{
    content,
    pair::{OPERATOR, Pair, RUNNER},
    relay::Relay,
    runner::{Attempt, Runner},
    tree::{Tree, condition},
    within,
};

const TOKEN: &str = "remote-remote-remote-remote";

/// A thread of one pair whose agent is a role of another pair.
struct Remote {
    far: Pair,
    /// The runner of the remote agent.
    runner: Runner,
    /// The attempt of the remote agent, and its session.
    attempt: Attempt,
    session: String,
    /// The relay in front of the A2A port.
    relay: Relay,
    _near: Pair,
    tree: Tree,
    thread: String,
    stop: CancellationToken,
    running: JoinHandle<()>,
    files: TempDir,
}

impl Remote {
    /// Spawns a thread and waits for its first turn at the remote agent.
    async fn spawn(binding: &str) -> (Self, Turn) {
        let far = Pair::start().await;
        let mut runner = Runner::attach(&far, "far").await;
        let files = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay::to(listener.local_addr().unwrap()).await;
        let url = url_of(relay.address());
        serve(&far, &url, listener, &files);

        let (near, tree, stop, running) = near(&url, binding, TOKEN, &files).await;
        let spawned = tree.spawn("worker").await;
        let start = runner.start().await;
        let attempt = runner.begin_start(&start).await;
        let remote = Self {
            far,
            runner,
            attempt,
            session: start.session_id.clone(),
            relay,
            _near: near,
            tree,
            thread: spawned.id,
            stop,
            running,
            files,
        };
        (remote, start.turn.unwrap())
    }

    /// Begins the remote agent's next turn.
    async fn next_turn(&mut self) -> Turn {
        self.runner.next_turn(&mut self.attempt).await
    }

    async fn complete(&mut self, message: &str) {
        self.runner.complete(&self.attempt, message).await;
    }

    /// Reports an artifact of this kind from the remote agent's first turn.
    async fn make(&mut self, kind: &str, name: &str, text: &'static str) {
        let file = ArtifactReport {
            turn: 1,
            name: name.to_owned(),
            kind: kind.to_owned(),
            media_type: String::from("text/plain"),
            data: text.into(),
            ..ArtifactReport::default()
        };
        self.runner.report(&self.attempt, Report::Artifact(file)).await;
    }

    /// Waits until the runner of the thread knows the task. Before that, a lost connection fails the turn.
    async fn known(&self) {
        let path = self
            .files
            .path()
            .join("scratch/state")
            .join(&self.thread)
            .join("a2a.json");
        let names_task = || {
            let record: Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
            record["task"].as_str().filter(|task| !task.is_empty()).map(drop)
        };
        within("the record of the task", async {
            while names_task().is_none() {
                yield_now().await;
            }
        })
        .await;
    }

    /// Waits until the thread is settled.
    async fn settled(&self) -> ThreadStatus {
        self.tree.settled(&self.thread).await
    }

    /// Returns the thread's artifacts.
    async fn artifacts(&self) -> Vec<Artifact> {
        self.tree.artifacts(&self.thread).await
    }

    async fn messages(&self) -> Vec<String> {
        let request = ListTranscriptRequest {
            session_id: self.tree.session.clone(),
            thread_id: self.thread.clone(),
            kinds: vec![TranscriptKind::Message.into()],
            ..ListTranscriptRequest::default()
        };
        let listed = self.tree.client().list_transcript(request).await.unwrap().into_inner();
        listed.entries.into_iter().map(|entry| entry.text).collect()
    }

    async fn end(self) {
        self.stop.cancel();
        within("the end of the runner", self.running).await.unwrap();
    }
}

/// Serves the workers of a pair as an A2A agent.
fn serve(far: &Pair, url: &str, listener: TcpListener, files: &TempDir) {
    fs::write(files.path().join("caller"), TOKEN).unwrap();
    let path = files.path().join("a2a.yaml");
    let agents = "agents: [{role: worker}]\ncallers: [{name: near, token_file: caller}]\n";
    fs::write(&path, format!("{agents}public_url: {url}\n")).unwrap();
    let upstream = |address| Upstream {
        url: url_of(address),
        token: Some(SecretToken::parse(OPERATOR).unwrap().into()),
        tls: ClientFiles::default(),
    };
    let service = Service::open(Options {
        config: Config::load(&path, false).unwrap(),
        supervisor: upstream(far.supervisor_at()),
        registry: upstream(far.registry_at()),
        push_directory: files.path().join("push"),
        address: listener.local_addr().unwrap(),
        is_https: false,
    })
    .unwrap();
    tokio::spawn(service.serve(listener, ServeLimits::default(), Shutdown::new()));
}

/// Starts a pair with a runner whose only program is the remote agent.
async fn near(
    url: &str,
    binding: &str,
    token: &str,
    files: &TempDir,
) -> (Pair, Tree, CancellationToken, JoinHandle<()>) {
    fs::write(files.path().join("token"), token).unwrap();
    let path = files.path().join("runner.yaml");
    let program = format!("{{kind: a2a, url: '{url}/a2a/worker', binding: {binding}, token_file: token}}");
    fs::write(&path, format!("programs: [{program}]")).unwrap();
    let pair = Pair::start().await;
    let mut config = RunnerConfig::new(
        "near",
        url_of(pair.supervisor_at()),
        Programs::read(&path).unwrap(),
        files.path().join("scratch"),
    );
    config.token = Some(RUNNER.parse().unwrap());
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { drop(troupe_runner::run(config, stop).await.unwrap()) }
    });
    let tree = pair.tree().await;
    (pair, tree, stop, running)
}

fn shown(settled: &ThreadStatus) -> (StatusKind, &str) {
    let status = settled.status.as_ref().unwrap();
    (status.kind(), status.message.as_str())
}

/// Returns the texts of a turn's input.
fn texts(turn: &Turn) -> Vec<String> {
    let items = turn.inputs.iter().flat_map(|input| &input.items);
    items
        .map(|item| match item.item.as_ref().unwrap() {
            Item::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_are_tasks_of_one_context() {
    let (mut remote, first) = Box::pin(Remote::spawn("JSONRPC")).await;
    let [role, task] = &texts(&first)[..] else {
        panic!("{first:?}")
    };
    assert!(
        role.contains("You are a worker") && !role.contains("Working in this system"),
        "{role}"
    );
    assert_eq!(task, "the task");
    remote.make("report", "notes.txt", "three files").await;
    remote.complete("Fixed.").await;
    assert_eq!(shown(&remote.settled().await), (StatusKind::Completed, "Fixed."));

    let artifacts = remote.artifacts().await;
    assert_eq!(artifacts.len(), 1, "{artifacts:?}");
    assert_eq!(
        (artifacts[0].name.as_str(), artifacts[0].media_type.as_str()),
        ("notes.txt", "text/plain")
    );
    let digest = &artifacts[0].content.as_ref().unwrap().digest;
    assert_eq!(
        content::read(&remote.tree.client(), &remote.tree.session, digest)
            .await
            .unwrap(),
        b"three files"
    );
    let thread = remote.tree.thread(&remote.thread).await;
    let gap = condition(&thread, ConditionKind::PolicyGap);
    assert!(
        gap.unwrap()
            .reason
            .contains("its own tools and actions are not restricted"),
        "{gap:?}"
    );

    // The next turn is another task of the same thread of the remote pair. The role is not repeated.
    remote.tree.send(&remote.thread, "And that").await;
    assert_eq!(texts(&remote.next_turn().await), ["And that"]);
    remote
        .runner
        .end(&remote.attempt, TurnOutcome::Errored, "no disk")
        .await;
    let failed = remote.settled().await;
    let (kind, message) = shown(&failed);
    assert_eq!(kind, StatusKind::Errored);
    assert!(
        message.starts_with("the remote agent 127.0.0.1:") && message.ends_with("failed: no disk"),
        "{message}"
    );
    remote.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_reaches_parent_and_answer_reaches_task() {
    let (mut remote, _) = Box::pin(Remote::spawn("JSONRPC")).await;
    let question = AskParentRequest {
        session_id: remote.session.clone(),
        thread_id: remote.attempt.thread.clone(),
        question: String::from("Which one?"),
        ..AskParentRequest::default()
    };
    remote.far.operator().ask_parent(question).await.unwrap();
    remote.complete("I asked.").await;
    let asking = remote.settled().await;
    assert_eq!(shown(&asking), (StatusKind::Completed, "Which one?"));
    assert_eq!(asking.question, "Which one?");

    remote.tree.send(&remote.thread, "The first").await;
    assert_eq!(texts(&remote.next_turn().await), ["The first"]);
    remote.complete("Fixed.").await;
    let done = remote.settled().await;
    assert_eq!(
        (shown(&done), done.question.as_str()),
        ((StatusKind::Completed, "Fixed."), "")
    );
    let messages = remote.messages().await;
    assert_eq!(
        messages.iter().filter(|text| *text == "Fixed.").count(),
        1,
        "{messages:?}"
    );
    remote.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interruption_cancels_the_task() {
    let (mut remote, _) = Box::pin(Remote::spawn("HTTP+JSON")).await;
    remote.tree.interrupt(&remote.thread).await;
    assert_eq!(remote.runner.interrupt_of(&remote.attempt).await.turn, 1);
    assert_eq!(shown(&remote.settled().await).0, StatusKind::Interrupted);
    remote.runner.end(&remote.attempt, TurnOutcome::Interrupted, "").await;

    // The context continues.
    remote.tree.send(&remote.thread, "Other work").await;
    assert_eq!(texts(&remote.next_turn().await), ["Other work"]);
    remote.complete("Other.").await;
    assert_eq!(shown(&remote.settled().await), (StatusKind::Completed, "Other."));
    remote.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_streams_lose_and_repeat_nothing() {
    let (mut remote, _) = Box::pin(Remote::spawn("HTTP+JSON")).await;
    remote.known().await;
    remote.relay.cut().await;
    remote.make("", "early.txt", "early").await;
    remote.relay.cut().await;
    remote.complete("Fixed.").await;
    remote.relay.cut().await;
    assert_eq!(shown(&remote.settled().await), (StatusKind::Completed, "Fixed."));
    assert_eq!(remote.messages().await, ["Fixed."]);
    let artifacts = remote.artifacts().await;
    assert_eq!(artifacts.len(), 1, "{artifacts:?}");
    remote.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_after_closed_context_starts_new_context() {
    let (mut remote, _) = Box::pin(Remote::spawn("JSONRPC")).await;
    remote.complete("Fixed.").await;
    remote.settled().await;
    let close = CloseSessionRequest {
        session_id: remote.session.clone(),
        ..CloseSessionRequest::default()
    };
    remote.far.operator().close_session(close).await.unwrap();
    remote.runner.stop(&remote.attempt).await;

    remote.tree.send(&remote.thread, "And that").await;
    let start = remote.runner.start().await;
    assert_ne!(start.session_id, remote.session);
    remote.attempt = Attempt::of(&start);
    remote.runner.begin(&remote.attempt).await;
    let [role, task] = &texts(&start.turn.unwrap())[..] else {
        panic!()
    };
    assert!(role.contains("You are a worker") && task == "And that", "{role} {task}");
    remote.complete("That, too.").await;
    assert_eq!(shown(&remote.settled().await), (StatusKind::Completed, "That, too."));
    let thread = remote.tree.thread(&remote.thread).await;
    let lost = condition(&thread, ConditionKind::ContextLost);
    assert!(lost.unwrap().reason.contains("the context is closed"), "{lost:?}");
    remote.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_token_error_omits_token() {
    let far = Pair::start().await;
    let files = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url_of(listener.local_addr().unwrap());
    serve(&far, &url, listener, &files);
    let wrong = "wrong-wrong-wrong-wrong";
    let (_near, tree, stop, running) = near(&url, "JSONRPC", wrong, &files).await;
    let spawned = tree.spawn("worker").await;
    let failed = tree.settled(&spawned.id).await;
    let (kind, message) = shown(&failed);
    assert_eq!(kind, StatusKind::Errored);
    assert!(
        message.contains("it does not accept the token in token_file: it answered 401"),
        "{message}"
    );
    assert!(!message.contains(wrong), "{message}");
    stop.cancel();
    within("the end of the runner", running).await.unwrap();
}
