//! Certificate rotation under load: no call fails, and later connections use the new certificates.
//!
//! Both services accept only TLS and authenticate each other and their clients by certificates. A rotation has three
//! steps: the new authority is trusted together with the old one, then the new authority issues every certificate, then
//! the old authority is no longer trusted. A successful call by a client that trusts only the new authority therefore
//! proves that the server presented a certificate of that authority.

use std::{
    fs, mem,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use tokio::{process::Child, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Error};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use troupe_client::tls::{self, ClientFiles};
use troupe_proto::{
    registry::v1::{ListAgentsRequest, agent_registry_service_client::AgentRegistryServiceClient},
    supervisor::v1::CreateSessionRequest,
};
use troupe_tests::{
    authority::Authority,
    client,
    process::{Home, service},
    relay::Relay,
    tree::Tree,
    within,
};

/// Number of times that the authority is replaced.
const ROTATIONS: usize = 2;

/// The identity of the supervisor at the registry.
const SERVICE: &str = "spiffe://example.org/troupe/service/supervisor";
const ADMIN: &str = "spiffe://example.org/troupe/admin/ann";

/// The files of both services: the trusted authorities, and each certificate before its key. The supervisor
/// presents the last pair to the registry.
const FILES: [&str; 7] = [
    "ca.crt",
    "registry.crt",
    "registry.key",
    "supervisor.crt",
    "supervisor.key",
    "service.crt",
    "service.key",
];

/// How files are replaced.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// All at once, by changing a link to their directory, like Kubernetes.
    Links,
    /// One after the other, each by renaming a new file to the name of the old file.
    Rename,
    /// One after the other, each by overwriting its content.
    Write,
}

/// A directory with a complete set of files of the services and of a client. It never changes.
struct Version(PathBuf);

impl Version {
    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Returns the files of a new client. A client always receives a complete set, because a program that starts with
    /// an incomplete set has no earlier files to use.
    fn client(&self) -> ClientFiles {
        ClientFiles {
            authorities: Some(self.path("ca.crt")),
            identity: Some((self.path("admin.crt"), self.path("admin.key"))),
        }
    }
}

/// The directory from which the services read their files.
struct Mount {
    directory: PathBuf,
    way: Way,
    versions: usize,
}

impl Mount {
    /// Creates the mount in a home directory, without files.
    fn new(home: &Path, way: Way) -> Self {
        let directory = home.join("mount");
        fs::create_dir(&directory).unwrap();
        if let Way::Links = way {
            for file in FILES {
                symlink(Path::new("..data").join(file), directory.join(file)).unwrap();
            }
        }
        Self {
            directory,
            way,
            versions: 0,
        }
    }

    /// Creates a set of files with these trusted authorities and certificates of `issuer`.
    fn make(&mut self, believed: &[&Authority], issuer: &Authority) -> Version {
        self.versions += 1;
        let directory = self.directory.join(format!("..{}", self.versions));
        fs::create_dir(&directory).unwrap();
        let bundle: String = believed
            .iter()
            .map(|authority| fs::read_to_string(authority.publish(&directory, "one.crt")).unwrap())
            .collect();
        fs::write(directory.join("ca.crt"), bundle).unwrap();
        for name in ["registry", "supervisor"] {
            issuer.server(&directory, name);
        }
        for (name, uri) in [("service", SERVICE), ("admin", ADMIN)] {
            issuer.client(&directory, name, uri);
        }
        Version(directory)
    }

    /// Makes the services read a version. After each step, all callers must complete a call.
    async fn show(&self, version: &Version, callers: &mut Callers) {
        match self.way {
            Way::Links => {
                self.link(version);
                callers.have_all_called().await;
            }
            Way::Rename => {
                for file in FILES {
                    self.rename(version, file);
                    callers.have_all_called().await;
                }
            }
            Way::Write => {
                for file in FILES {
                    fs::write(self.directory.join(file), fs::read(version.path(file)).unwrap()).unwrap();
                    callers.have_all_called().await;
                }
            }
        }
    }

    fn link(&self, version: &Version) {
        let aside = self.directory.join("..data_tmp");
        symlink(&version.0, &aside).unwrap();
        fs::rename(aside, self.directory.join("..data")).unwrap();
    }

    fn rename(&self, version: &Version, file: &str) {
        let aside = self.directory.join("aside");
        fs::copy(version.path(file), &aside).unwrap();
        fs::rename(aside, self.directory.join(file)).unwrap();
    }
}

/// How a caller creates its connections.
enum Connection {
    /// The caller keeps one connection.
    Lasting(Channel),
    /// The caller opens a new connection for each call, with the newest files.
    PerCall(watch::Receiver<ClientFiles>),
}

/// The calls of a caller.
#[derive(Clone)]
enum Question {
    /// Lists the agents of the registry.
    Agents,
    /// Spawns a thread, for which the supervisor calls the registry, and closes it.
    Thread(Box<Tree>),
}

/// A client that calls continuously. A failed call fails the test.
struct Caller {
    url: String,
    connection: Connection,
    question: Question,
}

impl Caller {
    async fn call(&self) {
        let channel = match &self.connection {
            Connection::Lasting(channel) => channel.clone(),
            Connection::PerCall(files) => {
                let files = files.borrow().clone();
                connect(&self.url, &files).await.unwrap()
            }
        };
        match &self.question {
            Question::Agents => {
                let mut registry = AgentRegistryServiceClient::new(channel);
                let answer = within("the agents", registry.list_agents(ListAgentsRequest::default())).await;
                answer.unwrap();
            }
            Question::Thread(tree) => {
                let tree = tree.by(client::supervisor_over(channel, None));
                let worker = tree.spawn("worker").await.id;
                tree.close(&worker).await;
            }
        }
    }

    async fn call_until(self, ended: CancellationToken, answered: watch::Sender<u64>) {
        while !ended.is_cancelled() {
            self.call().await;
            answered.send_modify(|calls| *calls += 1);
        }
    }
}

/// All callers.
struct Callers {
    /// The files for new connections.
    files: watch::Sender<ClientFiles>,
    tasks: JoinSet<()>,
    /// Number of completed calls of each caller.
    answered: Vec<watch::Receiver<u64>>,
    ended: CancellationToken,
}

impl Callers {
    fn new(files: ClientFiles) -> Self {
        Self {
            files: watch::Sender::new(files),
            tasks: JoinSet::new(),
            answered: Vec::new(),
            ended: CancellationToken::new(),
        }
    }

    fn add(&mut self, caller: Caller) {
        let (sender, answered) = watch::channel(0);
        self.tasks.spawn(caller.call_until(self.ended.clone(), sender));
        self.answered.push(answered);
    }

    /// Waits until each caller has completed a call that began after this moment.
    async fn have_all_called(&mut self) {
        for answered in &mut self.answered {
            // The next response may belong to a call that began earlier.
            let enough = *answered.borrow() + 2;
            let called = within("an answer", answered.wait_for(|calls| *calls >= enough)).await;
            called.expect("no call fails");
        }
    }

    async fn end(&mut self) {
        self.ended.cancel();
        while let Some(caller) = within("the end of a caller", self.tasks.join_next()).await {
            caller.expect("no call fails");
        }
    }
}

/// Both services and their callers.
struct TestCluster {
    authority: Authority,
    present: Version,
    mount: Mount,
    callers: Callers,
    /// The relay between the supervisor and the registry.
    relay: Relay,
    registry: String,
    supervisor: String,
    _processes: [Child; 2],
    home: Home,
}

impl TestCluster {
    async fn start(way: Way) -> Self {
        let (home, authority) = (Home::default(), Authority::default());
        let mut mount = Mount::new(home.path(), way);
        let present = mount.make(&[&authority], &authority);
        let mut callers = Callers::new(present.client());
        mount.show(&present, &mut callers).await;

        let (registry_process, registry) = serve(&home, "registry", &[]).await;
        let relay = Relay::to(registry).await;
        let url = format!("https://{}", relay.address());
        let to_registry = ["--registry-url", &url, "--registry-ca", "mount/ca.crt"];
        let as_service = [
            "--registry-cert",
            "mount/service.crt",
            "--registry-key",
            "mount/service.key",
        ];
        let arguments = [&to_registry[..], &as_service, &["--data-dir", "data"]].concat();
        let (supervisor_process, supervisor) = serve(&home, "supervisor", &arguments).await;
        Self {
            authority,
            present,
            mount,
            callers,
            relay,
            registry: format!("https://{registry}"),
            supervisor: format!("https://{supervisor}"),
            _processes: [registry_process, supervisor_process],
            home,
        }
    }

    /// Creates a session over a permanent connection.
    async fn tree(&self) -> Tree {
        let channel = connect(&self.supervisor, &self.present.client()).await.unwrap();
        Tree::open(client::supervisor_over(channel, None), CreateSessionRequest::default()).await
    }

    /// Starts callers of every kind.
    async fn begin_calls(&mut self, tree: &Tree) {
        for (url, question) in [
            (&self.registry, Question::Agents),
            (&self.supervisor, Question::Thread(Box::new(tree.clone()))),
        ] {
            let lasting = connect(url, &self.present.client()).await.unwrap();
            let anew = self.callers.files.subscribe();
            for connection in [Connection::Lasting(lasting), Connection::PerCall(anew)] {
                self.callers.add(Caller {
                    url: url.clone(),
                    connection,
                    question: question.clone(),
                });
            }
        }
        self.callers.have_all_called().await;
    }

    /// Replaces the current authority with a new one and returns the old one.
    async fn rotate(&mut self) -> Authority {
        let old = mem::take(&mut self.authority);
        let new = &self.authority;
        let steps: [(&[&Authority], &Authority); 3] = [(&[&old, new], &old), (&[&old, new], new), (&[new], new)];
        for (believed, issuer) in steps {
            self.present = self.mount.make(believed, issuer);
            self.mount.show(&self.present, &mut self.callers).await;
            self.callers.files.send_replace(self.present.client());
            self.callers.have_all_called().await;
        }
        old
    }

    /// Checks that new connections receive certificates of the new authority, and must present such certificates.
    async fn assert_rotated(&self, old: &Authority) {
        let new = self.present.client();
        let believes_old = ClientFiles {
            authorities: Some(old.publish(self.home.path(), "old.crt")),
            ..new.clone()
        };
        let shows_old = ClientFiles {
            identity: Some(old.client(self.home.path(), "late", ADMIN)),
            ..new.clone()
        };
        for url in [&self.registry, &self.supervisor] {
            assert!(is_served(url, &new).await, "{url} does not present the new certificate");
            assert!(
                !is_served(url, &believes_old).await,
                "{url} presents the old certificate"
            );
            assert!(!is_served(url, &shows_old).await, "{url} trusts the old authority");
        }
    }
}

/// Starts a service with the files of the mount and returns its address.
async fn serve(home: &Home, name: &str, arguments: &[&str]) -> (Child, SocketAddr) {
    let (mut command, ready) = service(home, name);
    let file = |kind: &str| format!("mount/{name}.{kind}");
    command
        .args(["--tls-cert", &file("crt"), "--tls-key", &file("key")])
        .args(["--tls-client-ca", "mount/ca.crt", "--log", "error"])
        .args(arguments);
    ready.start(&mut command).await
}

/// Opens a new connection with these files.
async fn connect(url: &str, files: &ClientFiles) -> Result<Channel, Error> {
    let endpoint = Endpoint::from_shared(url.to_owned()).unwrap();
    within("a connection or a refusal", tls::connect(endpoint, files)).await
}

/// Returns whether a call over a new connection succeeds. The call is necessary because, with TLS 1.3, a client can
/// connect before the server has verified the client's certificate.
async fn is_served(url: &str, files: &ClientFiles) -> bool {
    match connect(url, files).await {
        Ok(channel) => {
            let request = HealthCheckRequest::default();
            let answer = within("health", HealthClient::new(channel).check(request)).await;
            answer.is_ok()
        }
        Err(_) => false,
    }
}

async fn assert_no_call_fails(way: Way) {
    let mut cluster = TestCluster::start(way).await;
    let tree = cluster.tree().await;
    let begin = tree.head().await;
    let mut watch = tree.watch_after(begin).await;
    cluster.begin_calls(&tree).await;
    for _ in 0..ROTATIONS {
        let old = cluster.rotate().await;
        cluster.assert_rotated(&old).await;
    }
    cluster.callers.end().await;

    // The watch is still the same stream.
    let log = tree.log().await;
    let seen = watch.up_to(log.len() as u64).await;
    let expected = &log[usize::try_from(begin).unwrap()..];
    assert!(seen == expected, "the watch missed an event");

    // The supervisor kept its connections to the registry. Now a spawn needs a new connection, on which both services
    // trust only the new authority.
    cluster.relay.cut().await;
    tree.spawn("worker").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swapped_links_fail_no_call() {
    assert_no_call_fails(Way::Links).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renamed_files_fail_no_call() {
    assert_no_call_fails(Way::Rename).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overwritten_files_fail_no_call() {
    assert_no_call_fails(Way::Write).await;
}

/// While certificate and key do not match, the supervisor keeps using the pair that it read before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partly_replaced_certificate_keeps_registry_reachable() {
    let mut cluster = TestCluster::start(Way::Rename).await;
    let tree = cluster.tree().await;
    tree.spawn("worker").await;
    let next = cluster.mount.make(&[&cluster.authority], &cluster.authority);
    for file in ["service.crt", "service.key"] {
        cluster.mount.rename(&next, file);
        cluster.relay.cut().await;
        tree.spawn("worker").await;
    }
}
