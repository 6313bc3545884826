//! SIGTERM under load: a thousand watches are open, callers spawn continuously, some peers have stopped in the middle
//! of the handshake or never read, and a client watches the health at the admin port. The service still ends in time,
//! every watch receives the position to resume from, and acknowledged writes exist after the next start.

use std::{collections::BTreeSet, fs, net::SocketAddr, time::Duration};

use svc_kit::listen::url_of;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Child,
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};
use tonic::{
    Code, Streaming,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_client::HealthClient,
};
use troupe_client::tls::{self, ClientFiles};
use troupe_proto::{
    reason::Reason,
    registry::v1::WatchAgentsRequest,
    supervisor::v1::{CreateSessionRequest, OnLimit, SpawnAgentRequest, WatchThreadsRequest},
};
use troupe_tests::{
    authority::Authority,
    client::{self, Supervisor},
    crowd,
    events::assert_whole,
    process::{Home, service, terminate},
    refusal::refused,
    tree::{Spawned, Tree},
    watch::Watch,
    within,
};

/// Number of watches of the session in which the callers spawn.
const WATCHES: usize = 1000;
/// Number of watches of the registry.
const AGENT_WATCHES: usize = 100;
/// Number of callers that spawn.
const CALLERS: usize = 4;
/// Number of acknowledged spawns before the service gets the signal.
const ANSWERS: usize = 40;

/// Maximum time from SIGTERM to the end of the process. A half-open connection takes the whole drain, 7 s. The process
/// may take at most 9.5 s.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// The connection preface of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Size of the header of a SETTINGS frame, in bytes. A server begins every connection with a SETTINGS frame.
const GREETING: usize = 9;
/// The beginning of a TLS handshake: the header of a record of 512 bytes, and its first byte.
const HELLO: &[u8] = &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01];

/// A service as a process. Calls from this machine are an operator's.
struct Service {
    process: Child,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Service {
    async fn start(home: &Home, name: &str, arguments: &[&str]) -> Self {
        // The ready file of an earlier process.
        let _ = fs::remove_file(home.path().join(format!("{name}.json")));
        let (mut command, ready) = service(home, name);
        command.args(["--log", "warn", "--admin-listen", "127.0.0.1:0"]);
        let (process, address) = ready.start(command.args(arguments)).await;
        let admin = within("its admin port", ready.admin()).await;
        Self {
            process,
            address,
            admin: admin.parse().unwrap(),
        }
    }

    fn client(&self) -> Supervisor {
        client::supervisor(self.address, None)
    }

    /// Sends SIGTERM and checks that the process ends in time and successfully.
    async fn terminate(mut self) {
        terminate(&self.process);
        let ended = timeout(ENDS_WITHIN, self.process.wait()).await;
        let status = ended.expect("the service ends in time").unwrap();
        assert!(status.success(), "{status}");
    }
}

/// A client that watches the health of a process at its admin port, and a second peer of that port that has sent only
/// half of the preface.
struct Watcher {
    health: Streaming<HealthCheckResponse>,
    /// Keeps the connection open on the client's side.
    _client: HealthClient<Channel>,
    _half_open: TcpStream,
}

impl Watcher {
    async fn of(service: &Service) -> Self {
        let mut half_open = TcpStream::connect(service.admin).await.unwrap();
        half_open.write_all(&PREFACE[..PREFACE.len() / 2]).await.unwrap();
        let mut client = HealthClient::new(client::endpoint(service.admin).connect_lazy());
        let request = HealthCheckRequest { service: String::new() };
        let health = within("a watch of health", client.watch(request)).await;
        let mut watcher = Self {
            health: health.unwrap().into_inner(),
            _client: client,
            _half_open: half_open,
        };
        // A service reports its admin port before it serves.
        loop {
            match watcher.next().await {
                Some(ServingStatus::Serving) => return watcher,
                Some(_) => {}
                None => panic!("the health watch ended while the service runs"),
            }
        }
    }

    async fn next(&mut self) -> Option<ServingStatus> {
        let said = within("health, or its end", self.health.message()).await;
        said.unwrap().map(|said| said.status())
    }

    /// Checks that the watcher received the status "not serving" and then no more messages.
    async fn assert_ended(mut self) {
        assert_eq!(self.next().await, Some(ServingStatus::NotServing));
        assert_eq!(self.next().await, None);
    }
}

/// Opens connections that have sent nothing, half of the preface, and the preface without its settings. The service
/// waits for the rest.
async fn half_open(at: SocketAddr) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for said in [&PREFACE[..0], &PREFACE[..PREFACE.len() / 2], PREFACE] {
        let mut connection = TcpStream::connect(at).await.unwrap();
        connection.write_all(said).await.unwrap();
        let mut greeting = [0; GREETING];
        within("the server's settings", connection.read_exact(&mut greeting))
            .await
            .unwrap();
        connections.push(connection);
    }
    connections
}

/// Spawns until the service has ended, and sends the ids of the acknowledged threads.
async fn spawn_until_end(tree: Tree, answered: mpsc::Sender<String>) {
    loop {
        let request = SpawnAgentRequest {
            on_limit: OnLimit::Queue.into(),
            ..tree.request("worker")
        };
        let Ok(answer) = tree.try_spawn(request).await else {
            return;
        };
        answered.send(Spawned::of(answer).id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_under_load_loses_nothing_and_ends_every_watch() {
    let home = Home::default();
    let registry = Service::start(&home, "registry", &[]).await;
    let url = url_of(registry.address);
    let arguments = ["--data-dir", "data", "--registry-url", &url];
    let supervisor = Service::start(&home, "supervisor", &arguments).await;
    let at = supervisor.address;
    let tree = Tree::open(supervisor.client(), CreateSessionRequest::default()).await;
    let begin = tree.head().await;
    let request = WatchThreadsRequest {
        after_sequence: Some(begin),
        ..tree.watch_request()
    };

    let half_open = half_open(at).await;
    let watcher = Watcher::of(&supervisor).await;
    let unread = Watch::open(&client::deaf_supervisor(at, None), request.clone()).await;
    let mut watches = JoinSet::new();
    for watch in crowd::open(|| client::supervisor(at, None), &request, WATCHES).await {
        watches.spawn(watch.position_at_drain());
    }
    let (answered, mut answers) = mpsc::channel(1);
    for _ in 0..CALLERS {
        tokio::spawn(spawn_until_end(tree.by(supervisor.client()), answered.clone()));
    }
    drop(answered);

    let mut promised = BTreeSet::new();
    while promised.len() < ANSWERS {
        let thread = within("an answer", answers.recv()).await;
        promised.insert(thread.expect("the callers continue"));
    }
    let last_answers = async {
        while let Some(thread) = answers.recv().await {
            promised.insert(thread);
        }
    };
    let ((), (), positions) = tokio::join!(supervisor.terminate(), last_answers, watches.join_all());
    assert_eq!(positions.len(), WATCHES);
    watcher.assert_ended().await;
    drop((half_open, unread));

    let supervisor = Service::start(&home, "supervisor", &arguments).await;
    let tree = tree.by(supervisor.client());
    let threads = tree.threads().await.into_iter().map(|thread| thread.thread_id);
    let threads: BTreeSet<String> = threads.collect();
    let lost: Vec<&String> = promised.difference(&threads).collect();
    assert!(lost.is_empty(), "acknowledged threads are lost: {lost:?}");

    // One more event, so that watchers that received everything have an event to resume with.
    tree.note(&tree.root, "back").await;
    let log = tree.log().await;
    assert_whole(&log);
    // One watch for each position, because watchers with the same position resume alike. A watcher that did not read is
    // still at the beginning of its watch.
    let positions: BTreeSet<u64> = positions.into_iter().chain([begin]).collect();
    for position in positions {
        let rest = tree.watch_after(position).await.up_to(log.len() as u64).await;
        let expected = &log[usize::try_from(position).unwrap()..];
        assert_eq!(rest, expected, "after {position}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_registry_ends_its_watches() {
    let home = Home::default();
    let registry = Service::start(&home, "registry", &[]).await;
    let half_open = half_open(registry.address).await;
    let watcher = Watcher::of(&registry).await;
    let mut client = client::registry(registry.address, None);
    let mut watches = Vec::new();
    for _ in 0..AGENT_WATCHES {
        let watch = within("a watch", client.watch_agents(WatchAgentsRequest::default())).await;
        let mut watch = watch.unwrap().into_inner();
        within("the catalogue", watch.message()).await.unwrap().unwrap();
        watches.push(watch);
    }
    registry.terminate().await;
    watcher.assert_ended().await;
    for mut watch in watches {
        let last = within("the end of a watch", watch.message()).await;
        refused(last, Code::Unavailable, Reason::Draining, "watch again");
    }
    drop(half_open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_tls_handshakes_do_not_block_drain() {
    let home = Home::default();
    let authority = Authority::default();
    let ca = authority.publish(home.path(), "ca.crt");
    for name in ["registry", "supervisor"] {
        authority.server(home.path(), name);
    }
    let over_tls = ["--tls-cert", "registry.crt", "--tls-key", "registry.key"];
    let registry = Service::start(&home, "registry", &over_tls).await;
    let url = format!("https://{}", registry.address);
    let over_tls = ["--tls-cert", "supervisor.crt", "--tls-key", "supervisor.key"];
    let to_registry = ["--registry-url", &url, "--registry-ca", "ca.crt"];
    let arguments = [&over_tls[..], &to_registry, &["--data-dir", "data"]].concat();
    let supervisor = Service::start(&home, "supervisor", &arguments).await;

    // Connections are accepted in order. A response on a connection that is opened later shows that the half-open
    // connections were accepted.
    let mut half_open = Vec::new();
    for at in [registry.address, supervisor.address] {
        let mut connection = TcpStream::connect(at).await.unwrap();
        connection.write_all(HELLO).await.unwrap();
        half_open.push(connection);
    }
    let endpoint = Endpoint::from_shared(format!("https://{}", supervisor.address)).unwrap();
    let files = ClientFiles {
        authorities: Some(ca),
        identity: None,
    };
    let client = client::supervisor_over(tls::channel(&endpoint, &files), None);
    let tree = Tree::open(client, CreateSessionRequest::default()).await;
    tree.spawn("worker").await;
    let head = tree.head().await;
    let watch = tree.watch_after(head).await;

    let (position, ()) = tokio::join!(watch.position_at_drain(), supervisor.terminate());
    assert_eq!(position, head);
    registry.terminate().await;
    drop(half_open);
}
