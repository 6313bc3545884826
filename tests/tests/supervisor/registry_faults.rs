//! A registry that does not respond or returns invalid data: only the spawn waits for it, an invalid response is
//! neither a verdict nor an additional permission, and the next valid response counts.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    future::pending,
    mem,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{future::join_all, stream::unfold};
use svc_kit::{deadline::Deadline, listen::url_of};
use tokio::{io::AsyncWriteExt as _, net::TcpListener, sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    codegen::{BoxFuture, Context, Poll, Service, http},
    server::{Grpc, NamedService, UnaryService},
    transport::Server,
};
use tonic_prost::ProstCodec;
use troupe_proto::{
    MAX_MESSAGE_BYTES,
    common::v1::{ResolvedSpawn, Sandbox},
    fault::retry_after,
    reason::Reason,
    registry::v1::{
        ResolveSpawnRequest, ResolveSpawnResponse, agent_registry_service_server::SERVICE_NAME as REGISTRY,
    },
    supervisor::v1::{CreateSessionRequest, SpawnAgentRequest, SpawnAgentResponse},
};
use troupe_tests::{
    events::names,
    pair::Pair,
    refusal::refused,
    relay::Relay,
    tree::{Spawned, Tree},
    within,
};

/// The response of a registry to every request.
#[derive(Clone)]
enum Answer {
    Nothing,
    Resolved(Box<ResolvedSpawn>),
    Unresolved,
    Failure(Code),
}

/// A registry whose responses the test determines.
#[derive(Clone)]
struct Fake {
    answer: Arc<Mutex<Answer>>,
    /// Number of requests so far.
    asked: watch::Sender<u32>,
    /// Number of responses that only named a resolution that the supervisor already had.
    named: Arc<Mutex<u32>>,
    /// Time until the deadline of the last request.
    patience: Arc<Mutex<Option<Duration>>>,
    /// Whether the registry hands over to its successor at the next request.
    leaves: Arc<Mutex<bool>>,
    listener: Arc<TcpListener>,
    /// Stops the current server.
    serving: Arc<Mutex<CancellationToken>>,
}

impl Fake {
    /// Starts a registry, a pair whose supervisor calls it, and a session. The registry runs until the test ends.
    async fn start(answer: Answer) -> (Self, Pair, Tree) {
        let (fake, address) = Self::serve(answer).await;
        let pair = asking(address).await;
        let tree = tree(&pair).await;
        (fake, pair, tree)
    }

    /// Starts a registry on a free port and returns its address. The registry runs until the test ends.
    async fn serve(answer: Answer) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Self {
            answer: Arc::new(Mutex::new(answer)),
            asked: watch::Sender::new(0),
            named: Arc::default(),
            patience: Arc::default(),
            leaves: Arc::default(),
            listener: Arc::new(listener),
            serving: Arc::default(),
        };
        fake.take_over();
        (fake, address)
    }

    /// Starts a server in place of the current one. The earlier server stops like a real service: it sends GOAWAY on
    /// each connection while calls are in flight.
    fn take_over(&self) {
        let ended = CancellationToken::new();
        let before = mem::replace(&mut *self.serving.lock().unwrap(), ended.clone());
        let incoming = unfold(Arc::clone(&self.listener), |listener| async move {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let server = Server::builder().add_service(self.clone());
        tokio::spawn(async move {
            let served = server.serve_with_incoming_shutdown(incoming, ended.cancelled_owned());
            served.await.unwrap();
        });
        before.cancel();
    }

    fn set_answer(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }
}

impl UnaryService<ResolveSpawnRequest> for Fake {
    type Response = ResolveSpawnResponse;
    type Future = BoxFuture<Response<ResolveSpawnResponse>, Status>;

    fn call(&mut self, request: Request<ResolveSpawnRequest>) -> Self::Future {
        let (headers, now) = (request.metadata().clone().into_headers(), Instant::now());
        *self.patience.lock().unwrap() = Deadline::from_headers(&headers, now).map(|deadline| deadline.at - now);
        if mem::take(&mut *self.leaves.lock().unwrap()) {
            self.take_over();
        }
        let (known_etag, named) = (request.into_inner().known_etag, Arc::clone(&self.named));
        self.asked.send_modify(|times| *times += 1);
        let answer = self.answer.lock().unwrap().clone();
        Box::pin(async move {
            let resolved = match answer {
                Answer::Nothing => return pending().await,
                Answer::Failure(code) => return Err(Status::new(code, "nonsense")),
                Answer::Unresolved => None,
                Answer::Resolved(resolved) => Some(*resolved),
            };
            let etag = resolved
                .as_ref()
                .map(|resolved| format!("{resolved:?}"))
                .unwrap_or_default();
            let is_known = !etag.is_empty() && etag == known_etag;
            *named.lock().unwrap() += u32::from(is_known);
            let resolved = resolved.filter(|_| !is_known);
            Ok(Response::new(ResolveSpawnResponse { resolved, etag }))
        })
    }
}

impl Service<http::Request<Body>> for Fake {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = self.clone();
        Box::pin(async move {
            let codec = ProstCodec::<ResolveSpawnResponse, ResolveSpawnRequest>::default();
            Ok(Grpc::new(codec).unary(method, request).await)
        })
    }
}

impl NamedService for Fake {
    const NAME: &'static str = REGISTRY;
}

/// Returns the response of a working registry.
fn worker() -> ResolvedSpawn {
    ResolvedSpawn {
        agent_type: String::from("worker"),
        sandbox: Sandbox::WorkspaceWrite.into(),
        ..ResolvedSpawn::default()
    }
}

/// Returns a worker with a description of this size.
fn described(bytes: usize) -> ResolvedSpawn {
    ResolvedSpawn {
        agent_description: "x".repeat(bytes),
        ..worker()
    }
}

/// Returns a worker that may spawn this number of roles.
fn spawning(roles: usize) -> ResolvedSpawn {
    ResolvedSpawn {
        spawn_list: (0..roles).map(|number| format!("a-role-of-number-{number}")).collect(),
        ..worker()
    }
}

/// Starts a pair whose supervisor calls that registry instead of the pair's registry.
async fn asking(registry: SocketAddr) -> Pair {
    let url = url_of(registry);
    Pair::with(move |config| config.registry_url.clone_from(&url)).await
}

async fn tree(pair: &Pair) -> Tree {
    let request = CreateSessionRequest {
        sandbox: Sandbox::WorkspaceWrite.into(),
        ..CreateSessionRequest::default()
    };
    Tree::open(pair.operator(), request).await
}

/// Checks that a spawn failed because the registry was not available.
#[track_caller]
fn assert_unavailable(spawned: Result<SpawnAgentResponse, Status>) {
    let text = "nothing was done, try again";
    refused(spawned, Code::Unavailable, Reason::RegistryUnavailable, text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_registry_is_called_once_and_delays_only_spawns() {
    let (fake, _pair, tree) = Fake::start(Answer::Nothing).await;
    let head = tree.head().await;
    let spawner = tree.clone();
    let spawn = tokio::spawn(async move { spawner.try_spawn(spawner.request("worker")).await });
    let mut asked = fake.asked.subscribe();
    within("a question", asked.wait_for(|times| *times > 0)).await.unwrap();

    tree.note(&tree.root, "meanwhile").await;
    assert!(!spawn.is_finished(), "the spawn still waits");
    assert_unavailable(spawn.await.unwrap());
    assert_eq!(*fake.asked.borrow(), 1, "the registry is already slow");
    let since = tree.watch_after(head).await.up_to(tree.head().await).await;
    assert_eq!(names(&since), ["NoteSet"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_spawn_releases_its_request_id() {
    let (fake, _pair, tree) = Fake::start(Answer::Nothing).await;
    let request = SpawnAgentRequest {
        request_id: String::from("again"),
        ..tree.request("worker")
    };
    let (spawner, first) = (tree.clone(), request.clone());
    let asking = tokio::spawn(async move { spawner.try_spawn(first).await });
    let mut asked = fake.asked.subscribe();
    within("a question", asked.wait_for(|times| *times > 0)).await.unwrap();
    // This call waits for the first one, and is cancelled before the first one ends.
    let mut late = Request::new(request.clone());
    late.set_timeout(Duration::from_millis(50));
    let code = tree.client().spawn_agent(late).await.unwrap_err().code();
    assert!(
        matches!(code, Code::DeadlineExceeded | Code::Cancelled),
        "expected an error of the deadline, not {code}"
    );
    asking.abort();

    fake.set_answer(Answer::Resolved(Box::new(worker())));
    let spawned = Box::pin(within("a spawn", tree.try_spawn(request))).await.unwrap();
    assert_eq!(Spawned::of(spawned).thread.agent_type, "worker");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_resolution_is_requested_by_digest() {
    let (fake, _pair, tree) = Fake::start(Answer::Resolved(Box::new(worker()))).await;
    for named in [0, 1, 2] {
        assert_eq!(tree.spawn("worker").await.thread.agent_type, "worker");
        assert_eq!(*fake.named.lock().unwrap(), named, "answers that were a name alone");
    }
    // A response with neither the name of a known resolution nor any other content.
    fake.set_answer(Answer::Unresolved);
    assert_unavailable(tree.try_spawn(tree.request("worker")).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_registry_response_counts_as_unavailable() {
    let (fake, _pair, tree) = Fake::start(Answer::Unresolved).await;
    let head = tree.head().await;
    let too_large = Answer::Resolved(Box::new(described(MAX_MESSAGE_BYTES)));
    // An error of the registry has a reason. These errors come from other processes at its address.
    let failures = [
        Code::InvalidArgument,
        Code::NotFound,
        Code::PermissionDenied,
        Code::FailedPrecondition,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::DataLoss,
        Code::Unauthenticated,
    ];
    let answers = failures.map(Answer::Failure);
    for answer in [Answer::Unresolved, too_large].into_iter().chain(answers) {
        fake.set_answer(answer);
        assert_unavailable(tree.try_spawn(tree.request("worker")).await);
    }
    assert_eq!(tree.head().await, head, "nothing is recorded");

    // After that number of failures, the registry is not called for one second.
    fake.set_answer(Answer::Resolved(Box::new(worker())));
    spawn_until_accepted(&tree).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_delays_are_randomized() {
    let (_fake, _pair, tree) = Fake::start(Answer::Failure(Code::Internal)).await;
    let mut told = BTreeSet::new();
    // Some spawns fail after the request to the registry, the others during the pause.
    for _ in 0..16 {
        let status = tree.try_spawn(tree.request("worker")).await.unwrap_err();
        told.insert(retry_after(&status).unwrap());
    }
    assert!(told.len() > 1, "{told:?}");
    assert!(
        *told.first().unwrap() >= Duration::from_secs(1),
        "every retry delay is long enough: {told:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_receives_the_callers_deadline() {
    let (fake, _pair, tree) = Fake::start(Answer::Resolved(Box::new(worker()))).await;
    tree.spawn("worker").await;
    let longest = fake.patience.lock().unwrap().take().expect("a deadline in any case");

    let mut hurried = Request::new(tree.request("worker"));
    hurried.set_timeout(longest / 2);
    tree.client().spawn_agent(hurried).await.unwrap();
    let left = fake.patience.lock().unwrap().take().expect("the caller's deadline");
    assert!(!left.is_zero() && left <= longest / 2, "{left:?} of {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawns_survive_replacement_of_the_registry() {
    let (fake, _pair, tree) = Fake::start(Answer::Resolved(Box::new(worker()))).await;
    for _ in 0..3 {
        *fake.leaves.lock().unwrap() = true;
        let spawns = (0..3).map(|_| tree.try_spawn(tree.request("worker")));
        for spawned in join_all(spawns).await {
            assert_eq!(Spawned::of(spawned.unwrap()).thread.agent_type, "worker");
        }
        assert!(!*fake.leaves.lock().unwrap(), "the registry has sent GOAWAY");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_retries_after_goaway_of_the_registry() {
    let (_fake, address) = Fake::serve(Answer::Resolved(Box::new(worker()))).await;
    let mut relay = Relay::to(address).await;
    let pair = asking(relay.address()).await;
    let tree = tree(&pair).await;
    relay.leave().await;
    assert_eq!(tree.spawn("worker").await.thread.agent_type, "worker");
    assert!(relay.has_left());
}

/// Simulates that the registry's machine has vanished. TCP alone would retransmit for a quarter of an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_registry_connection_is_dropped() {
    let (_fake, address) = Fake::serve(Answer::Resolved(Box::new(worker()))).await;
    let mut relay = Relay::to(address).await;
    let pair = asking(relay.address()).await;
    let tree = tree(&pair).await;
    tree.spawn("worker").await;
    relay.silence().await;
    assert_unavailable(tree.try_spawn(tree.request("worker")).await);
    spawn_until_accepted(&tree).await;
}

/// Spawns until a spawn succeeds.
async fn spawn_until_accepted(tree: &Tree) {
    let answered = async {
        loop {
            match tree.try_spawn(tree.request("worker")).await {
                Ok(answer) => return Spawned::of(answer),
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status:?}"),
            }
        }
    };
    let spawned = Box::pin(within("a spawn", answered)).await;
    assert_eq!(spawned.thread.agent_type, "worker");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unparsable_registry_response_spawns_nothing() {
    let (fake, _pair, tree) = Fake::start(Answer::Nothing).await;
    let head = tree.head().await;
    let of_no_sandbox = ResolvedSpawn {
        sandbox: 99,
        ..worker()
    };
    for (resolved, code) in [
        (ResolvedSpawn::default(), Code::Unavailable),
        (of_no_sandbox, Code::Unavailable),
        (spawning(1_024), Code::ResourceExhausted),
    ] {
        fake.set_answer(Answer::Resolved(Box::new(resolved)));
        let status = tree.try_spawn(tree.request("worker")).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(
            code != Code::Unavailable || retry_after(&status).is_some(),
            "{status:?}"
        );
    }
    assert_eq!(tree.head().await, head, "nothing is recorded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_response_never_exceeds_the_parent() {
    let looser = ResolvedSpawn {
        sandbox: Sandbox::FullAccess.into(),
        ..worker()
    };
    let (_fake, _pair, tree) = Fake::start(Answer::Resolved(Box::new(looser))).await;
    let spawned = tree.spawn("worker").await;
    assert_eq!(spawned.thread.sandbox(), Sandbox::WorkspaceWrite);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn non_grpc_server_counts_as_unavailable_registry() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The caller may have disconnected.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    let pair = asking(address).await;
    let tree = tree(&pair).await;
    let head = tree.head().await;
    assert_unavailable(tree.try_spawn(tree.request("worker")).await);
    assert_eq!(tree.head().await, head, "nothing is recorded");
}
