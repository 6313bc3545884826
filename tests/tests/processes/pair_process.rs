//! `troupe up` as a process: its readiness, its calls, the lock of its data directory, its listen addresses, and its
//! end, which interrupts running turns that continue after the next start.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;
use supervisor_core::ids::Digest;
use tokio::process::Child;
use tokio_stream::iter;
use tonic::{Code, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};
use troupe_proto::{
    registry::v1::ListAgentsRequest,
    supervisor::v1::{CreateSessionRequest, Event, StatusKind, TurnOutcome, event::Kind},
};
use troupe_tests::{
    client::{Supervisor, endpoint, registry, supervisor},
    process::{Home, Up, service, signal, stderr},
    tree::{Tree, kind},
    until, within,
};

const REGISTRY: &str = "troupe.registry.v1.AgentRegistryService";
const SUPERVISOR: &str = "troupe.supervisor.v1.AgentSupervisorService";
const RUNNERS: &str = "troupe.supervisor.v1.ThreadRunnerService";

async fn is_serving(channel: &Channel, service: &str) -> bool {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let answer = HealthClient::new(channel.clone()).check(request).await.unwrap();
    answer.into_inner().status() == ServingStatus::Serving
}

fn list_services() -> ServerReflectionRequest {
    ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    }
}

/// Returns the services that reflection lists.
async fn services(channel: &Channel) -> Vec<String> {
    let mut client = ServerReflectionClient::new(channel.clone());
    let mut answers = client
        .server_reflection_info(iter([list_services()]))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("unexpected response of reflection")
    };
    list.service.into_iter().map(|service| service.name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_pair_serves_health_reflection_and_calls() {
    let home = Home::default();
    let up = Up::start(&home).await;
    for (address, names) in [
        (up.registry, &[REGISTRY][..]),
        (up.supervisor, &[SUPERVISOR, RUNNERS][..]),
    ] {
        let channel = endpoint(address).connect().await.unwrap();
        assert!(is_serving(&channel, "").await);
        let listed = services(&channel).await;
        for name in names {
            assert!(is_serving(&channel, name).await, "{name}");
            assert!(listed.iter().any(|listed| listed == name), "{name}: {listed:?}");
        }
    }
    let agents = registry(up.registry, None)
        .list_agents(ListAgentsRequest::default())
        .await;
    let agents = agents.unwrap().into_inner().agents;
    let names: Vec<&str> = agents.iter().map(|agent| agent.agent_type.as_str()).collect();
    assert_eq!(
        names,
        [
            "architect",
            "bug-hunter",
            "explorer",
            "orchestrator",
            "reviewer",
            "worker"
        ]
    );
    let tree = Tree::open(up.client(), CreateSessionRequest::default()).await;
    tree.spawn("worker").await;
    let data = home.path().join(".local/share/troupe/troupe.db");
    assert!(data.is_file(), "the log is in the XDG data directory");
    assert!(
        home.path().join(".codex/.agents/worker.md").is_file(),
        "the embedded files were written to the home directory"
    );
    up.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_without_reflection_serves_other_calls() {
    let home = Home::default();
    let (mut command, ready) = service(&home, "registry");
    let (_process, address) = ready.start(command.arg("--no-reflection")).await;
    let channel = endpoint(address).connect().await.unwrap();
    assert!(is_serving(&channel, REGISTRY).await);
    let mut client = ServerReflectionClient::new(channel);
    let refused = client
        .server_reflection_info(iter([list_services()]))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

/// Returns the log of `registry-svc` until it serves.
async fn said_by_registry(home: &Home) -> String {
    let log = home.path().join("registry.log");
    let (mut command, ready) = service(home, "registry");
    let (mut process, _) = ready.start(command.stderr(File::create(&log).unwrap())).await;
    process.kill().await.unwrap();
    fs::remove_file(home.path().join("registry.json")).unwrap();
    fs::read_to_string(log).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skipped_seeding_is_logged() {
    const TROUBLE: &str = "cannot seed ";
    const OUTDATED: &str = "edited copies of embedded files are based on an older release";
    let home = Home::default();
    let codex = home.path().join(".codex");
    fs::create_dir(&codex).unwrap();
    fs::write(codex.join("collab"), "a file in the way").unwrap();
    let said = said_by_registry(&home).await;
    assert_eq!(said.matches(TROUBLE).count(), 1, "{said}");
    assert!(!said.contains(OUTDATED), "{said}");

    // As after an upgrade: an edited copy of a file from an older release.
    let worker = codex.join(".agents/worker.md");
    let embedded = Digest::of(&fs::read(&worker).unwrap()).to_string();
    fs::write(&worker, "---\ndescription: Mine.\n---\nMine.\n").unwrap();
    let manifest = codex.join(".agents/.troupe-seed.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace(&embedded, &Digest::of(b"older").to_string())).unwrap();
    let said = said_by_registry(&home).await;
    let line = said.lines().find(|line| line.contains(OUTDATED)).unwrap();
    assert!(line.contains("INFO") && line.contains("worker.md"), "{line}");
    assert_eq!(line.matches(".md").count(), 1, "{line}");

    Up::start(&home).await.kill().await;
    let said = fs::read_to_string(home.path().join("log")).unwrap();
    assert!(said.contains(TROUBLE), "{said}");
}

/// Waits until a pair writes its ready file. Returns the address of its supervisor.
pub(crate) async fn supervisor_at(ready: &Path) -> SocketAddr {
    let mut found = None;
    until("a pair that serves", || {
        let text = fs::read(ready).unwrap_or_default();
        found = serde_json::from_slice::<Value>(&text).ok();
        found.is_some()
    })
    .await;
    found.unwrap()["supervisor"].as_str().unwrap().parse().unwrap()
}

/// `up` with a runner of the sample agent and text output for users. Its standard error goes into a file.
struct Shown {
    process: Child,
    supervisor: SocketAddr,
    said: PathBuf,
}

impl Shown {
    async fn start(home: &Home) -> Self {
        let (ready, said) = (home.path().join("ready.json"), home.path().join("said"));
        let _ = fs::remove_file(&ready);
        let process = home
            .troupe(Up::WITH_RUNNER)
            .arg("--ready-file")
            .arg(&ready)
            .stdout(Stdio::null())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let supervisor = supervisor_at(&ready).await;
        Self {
            process,
            supervisor,
            said,
        }
    }

    fn client(&self, home: &Home) -> Supervisor {
        supervisor(self.supervisor, Some(&home.operator_token()))
    }

    /// Sends SIGINT, like Ctrl-C.
    fn interrupt(&self) {
        signal(&self.process, Signal::INT);
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    async fn has_said(&self, text: &str) {
        until(text, || self.said().contains(text)).await;
    }

    async fn ended(&mut self) -> ExitStatus {
        within("its end", self.process.wait()).await.unwrap()
    }
}

/// Spawns a thread of the sample agent and waits until its turn has started.
async fn spawn_running(tree: &Tree, message: &str) -> String {
    let thread = tree.spawn_for("worker", message).await.id;
    let is_started = |event: &Event| event.thread_id == thread && matches!(event.kind, Some(Kind::TurnStarted(_)));
    tree.watch_after(0).await.until(is_started).await;
    thread
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_pair_interrupts_turns_that_continue_later() {
    let home = Home::default();
    let mut up = Shown::start(&home).await;
    let tree = Tree::open(up.client(&home), CreateSessionRequest::default()).await;
    let held = spawn_running(&tree, "hold").await;
    let short = spawn_running(&tree, "sleep: 500ms\nsay: in time").await;
    up.interrupt();
    assert_eq!(up.ended().await.code(), Some(0), "{}", up.said());
    let said = up.said();
    assert!(
        said.contains("running turns have 3s to finish and are then interrupted"),
        "{said}"
    );
    assert!(said.contains(&format!("troupe send {held} -m 'Continue.'")), "{said}");
    assert!(
        !said.contains(&short),
        "a turn that ended in time was not interrupted: {said}"
    );

    let mut up = Shown::start(&home).await;
    let tree = tree.by(up.client(&home));
    let thread = tree.thread(&held).await;
    assert_eq!(kind(&thread), StatusKind::Interrupted);
    assert_eq!(thread.status.unwrap().reason, "the service was stopped");
    let thread = tree.thread(&short).await;
    assert_eq!(kind(&thread), StatusKind::Completed);
    assert!(thread.status.unwrap().message.contains("in time"));

    // The printed command continues the conversation.
    let address = format!("http://{}", up.supervisor);
    let sent = home
        .run(&["send", &held, "-m", "Continue.", "--supervisor", &address])
        .await;
    assert!(sent.status.success(), "{}", stderr(&sent));
    let is_over = |event: &Event| {
        event.thread_id == held
            && matches!(&event.kind, Some(Kind::TurnEnded(ended)) if ended.outcome() == TurnOutcome::Completed)
    };
    tree.watch_after(0).await.until(is_over).await;
    up.interrupt();
    assert_eq!(up.ended().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_interrupt_of_pair_ends_it_at_once() {
    let home = Home::default();
    let mut up = Shown::start(&home).await;
    let tree = Tree::open(up.client(&home), CreateSessionRequest::default()).await;
    spawn_running(&tree, "hold").await;
    up.interrupt();
    up.has_said("a second Ctrl-C stops at once").await;
    up.interrupt();
    assert!(!up.ended().await.success());
    assert!(up.said().contains("stopped at the second signal"), "{}", up.said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_directory_is_locked_by_one_pair() {
    let home = Home::default();
    let first = Up::start(&home).await;
    let second = home.run(Up::ARGUMENTS).await;
    assert!(!second.status.success());
    let said = stderr(&second);
    assert!(
        said.contains(&format!("is in use by another troupe (process {})", first.id())),
        "{said}"
    );
    assert!(
        said.contains("stop that one or choose another directory with --data-dir"),
        "{said}"
    );
    // The first pair is not affected.
    Tree::open(first.client(), CreateSessionRequest::default()).await;
    first.kill().await;

    // A lock does not outlive its process, even after SIGKILL.
    Up::start(&home).await.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_listener_without_authentication_is_rejected() {
    let home = Home::default();
    for (registry, supervisor) in [("127.0.0.1:0", "0.0.0.0:0"), ("0.0.0.0:0", "127.0.0.1:0")] {
        let output = home
            .run(&[
                "up",
                "--no-runner",
                "--registry-listen",
                registry,
                "--supervisor-listen",
                supervisor,
            ])
            .await;
        assert!(!output.status.success(), "{registry} {supervisor}");
        let said = stderr(&output);
        assert!(said.contains("refusing to listen on"), "{said}");
        assert!(said.contains("without authentication"), "{said}");
        assert!(said.contains("--insecure"), "{said}");
    }
}
