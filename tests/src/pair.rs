//! Registry and supervisor in this process: real servers on free ports, with their own home, project and data
//! directory. No runner is attached; see [`crate::runner`]. `TROUPE_TEST_MEMBERS=3` starts three supervisors behind one
//! address instead.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use futures::future::join_all;
use registry_svc::Registry;
use supervisor_log::store::PostgresOptions;
use supervisor_svc::{Config, Supervisor};
use svc_kit::{
    auth::Authenticator, identity::OperatorRole, listen::url_of, paths::DataDir, secret::SecretToken,
    serve::ServeLimits, shutdown::Shutdown,
};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    task::{JoinHandle, yield_now},
};

use crate::{
    client,
    members::{self, Balancer},
    postgres_server::Database,
    within,
};

/// Token of an operator with all permissions.
pub const OPERATOR: &str = "operator-operator-operator";
/// Token of a viewer.
pub const VIEWER: &str = "viewer-viewer-viewer";
/// Token of runners.
pub const RUNNER: &str = "runner-runner-runner";
/// Token of the supervisor at the registry.
pub const SERVICE: &str = "service-service-service";

/// Listen address with a free port.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A running pair.
pub struct Pair {
    /// Number of supervisors.
    members: usize,
    base: PathBuf,
    configure: Box<dyn Fn(&mut Config) + Send + Sync>,
    registry: Option<Running>,
    registry_at: SocketAddr,
    supervisors: Supervisors,
    database: Option<(Database, PostgresOptions)>,
    _data: DataDir,
    _files: TempDir,
}

/// The running supervisors.
struct Supervisors {
    running: Vec<Running>,
    services: Vec<Supervisor>,
    /// The balancer in front of several supervisors.
    balancer: Option<Balancer>,
}

impl Supervisors {
    fn address(&self) -> SocketAddr {
        let balancer = self.balancer.as_ref().map(|balancer| balancer.address);
        balancer.unwrap_or_else(|| self.running[0].address)
    }
}

/// A running service.
struct Running {
    address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl Running {
    async fn stop(self) {
        self.shutdown.trigger();
        within("the end of a service", self.task).await.unwrap();
    }
}

impl Pair {
    /// Starts a pair with default settings.
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a pair with changed supervisor settings, which later restarts use too.
    pub async fn with(configure: impl Fn(&mut Config) + Send + Sync + 'static) -> Self {
        Self::of(members::count(), configure).await
    }

    /// Starts a pair with one supervisor, whose log is in the data directory. For tests that look at one process.
    pub async fn alone(configure: impl Fn(&mut Config) + Send + Sync + 'static) -> Self {
        Self::of(1, configure).await
    }

    async fn of(members: usize, configure: impl Fn(&mut Config) + Send + Sync + 'static) -> Self {
        let files = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(files.path()).unwrap();
        for directory in ["home", "project/.git", "project/.codex/.agents", "elsewhere"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        let data = DataDir::open(&base.join("data")).unwrap();
        let registry = serve_registry(&base, ANYWHERE).await;
        let database = (members > 1).then(members::database);
        let options = database.as_ref().map(|(_, options)| options);
        let supervisors = serve_supervisors(members, &base, registry.address, &configure, options).await;
        Self {
            members,
            base,
            configure: Box::new(configure),
            registry_at: registry.address,
            registry: Some(registry),
            supervisors,
            database,
            _data: data,
            _files: files,
        }
    }

    /// Restarts both services over the same files, on other ports.
    pub async fn restart(&mut self) {
        self.restart_after(|_| {}).await;
    }

    /// Restarts both services, and changes the data directory while they are stopped.
    pub async fn restart_after(&mut self, change: impl FnOnce(&Path)) {
        self.stop_supervisor().await;
        self.stop_registry().await;
        change(&self.base.join("data"));
        let registry = serve_registry(&self.base, ANYWHERE).await;
        let options = self.database.as_ref().map(|(_, options)| options);
        let members = self.members;
        self.supervisors = serve_supervisors(members, &self.base, registry.address, &*self.configure, options).await;
        self.registry_at = registry.address;
        self.registry = Some(registry);
    }

    /// Returns the number of sessions in the memory of all supervisors.
    #[must_use]
    pub fn loaded_sessions(&self) -> usize {
        self.supervisors.services.iter().map(Supervisor::loaded_sessions).sum()
    }

    /// Waits until exactly `loaded` sessions are in memory.
    pub async fn wait_until_loaded(&self, loaded: usize) {
        within("rest", async {
            while self.loaded_sessions() != loaded {
                yield_now().await;
            }
        })
        .await;
    }

    /// Stops the registry.
    pub async fn stop_registry(&mut self) {
        if let Some(registry) = self.registry.take() {
            registry.stop().await;
        }
    }

    /// Starts the registry again at its address.
    pub async fn start_registry(&mut self) {
        self.registry = Some(serve_registry(&self.base, self.registry_at).await);
    }

    async fn stop_supervisor(&mut self) {
        join_all(self.supervisors.running.drain(..).map(Running::stop)).await;
        self.supervisors.services.clear();
    }

    /// Returns the project's directory.
    #[must_use]
    pub fn project(&self) -> String {
        self.path("project")
    }

    /// Returns an existing directory outside the workspace roots.
    #[must_use]
    pub fn elsewhere(&self) -> String {
        self.path("elsewhere")
    }

    fn path(&self, name: &str) -> String {
        self.base.join(name).display().to_string()
    }

    /// Writes a role of the project.
    pub fn write_role(&self, name: &str, text: &str) {
        let path = self.base.join("project/.codex/.agents").join(format!("{name}.md"));
        fs::write(path, text).unwrap();
    }

    /// Returns the supervisor's address.
    #[must_use]
    pub fn supervisor_at(&self) -> SocketAddr {
        self.supervisors.address()
    }

    /// Returns the registry's address.
    #[must_use]
    pub const fn registry_at(&self) -> SocketAddr {
        self.registry_at
    }

    /// Returns a client of the supervisor with all permissions.
    #[must_use]
    pub fn operator(&self) -> client::Supervisor {
        self.with_token(OPERATOR)
    }

    /// Returns a client of the supervisor with a token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> client::Supervisor {
        client::supervisor(self.supervisor_at(), Some(token))
    }

    /// Returns a client of the supervisor without a token.
    #[must_use]
    pub fn stranger(&self) -> client::Supervisor {
        client::supervisor(self.supervisor_at(), None)
    }

    /// Returns an operator's client with a small flow control window.
    #[must_use]
    pub fn narrow_operator(&self) -> client::Supervisor {
        client::narrow_supervisor(self.supervisor_at(), Some(OPERATOR))
    }

    /// Returns a client with a token whose streams have no space for any message.
    #[must_use]
    pub fn deaf(&self, token: &str) -> client::Supervisor {
        client::deaf_supervisor(self.supervisor_at(), Some(token))
    }

    /// Returns a client of the runner service with a token.
    #[must_use]
    pub fn runners(&self, token: &str) -> client::Runners {
        client::runners(self.supervisor_at(), Some(token))
    }

    /// Returns a client of the runner service of each supervisor, with a token.
    #[must_use]
    pub fn runners_of_each(&self, token: &str) -> Vec<client::Runners> {
        let running = self.supervisors.running.iter();
        running
            .map(|running| client::runners(running.address, Some(token)))
            .collect()
    }

    /// Returns a client of the registry with a token.
    #[must_use]
    pub fn registry(&self, token: &str) -> client::Registry {
        client::registry(self.registry_at, Some(token))
    }
}

async fn serve_registry(base: &Path, address: SocketAddr) -> Running {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let registry = Registry::open(registry_svc::Config {
        home: Some(base.join("home")),
        workspace_roots: vec![base.join("project")],
        seed: true,
        ..registry_svc::Config::default()
    })
    .unwrap();
    let shutdown = Shutdown::new();
    let serving = registry.serve(listener, authenticator(), limits(), shutdown.clone());
    Running {
        address,
        shutdown,
        task: tokio::spawn(async move { serving.await.unwrap() }),
    }
}

async fn serve_supervisors(
    members: usize,
    base: &Path,
    registry: SocketAddr,
    configure: &(dyn Fn(&mut Config) + Send + Sync),
    database: Option<&PostgresOptions>,
) -> Supervisors {
    let mut supervisors = Supervisors {
        running: Vec::new(),
        services: Vec::new(),
        balancer: None,
    };
    for index in 0..members {
        let mut config = Config::new(base.join("data"), url_of(registry));
        if let Some(database) = database {
            config.data_dir = base.join(format!("data-{index}"));
            fs::create_dir_all(&config.data_dir).unwrap();
            config.postgres = Some(database.clone());
            config.cluster.member_name = Some(format!("member-{index}"));
        }
        config.registry_token = Some(secret(SERVICE).into());
        configure(&mut config);
        let (running, service) = serve_supervisor(config).await;
        supervisors.running.push(running);
        supervisors.services.push(service);
    }
    if supervisors.running.len() > 1 {
        let addresses: Vec<_> = supervisors.running.iter().map(|running| running.address).collect();
        within(
            "members that know each other",
            members::know_each_other(&addresses, OPERATOR),
        )
        .await;
        supervisors.balancer = Some(Balancer::to(addresses).await);
    }
    supervisors
}

async fn serve_supervisor(config: Config) -> (Running, Supervisor) {
    let listener = TcpListener::bind(ANYWHERE).await.unwrap();
    let address = listener.local_addr().unwrap();
    let supervisor = Supervisor::open(config).await.unwrap();
    let shutdown = Shutdown::new();
    let serving = supervisor
        .clone()
        .serve(listener, authenticator(), limits(), shutdown.clone());
    let running = Running {
        address,
        shutdown,
        task: tokio::spawn(async move { serving.await.unwrap() }),
    };
    (running, supervisor)
}

/// Returns an authenticator for the tokens above.
#[must_use]
pub fn authenticator() -> Authenticator {
    Authenticator::new()
        .operator("tester", OperatorRole::Admin, secret(OPERATOR))
        .operator("reader", OperatorRole::Viewer, secret(VIEWER))
        .runner("tester", secret(RUNNER))
        .service("supervisor", secret(SERVICE))
}

fn secret(text: &str) -> SecretToken {
    SecretToken::parse(text).unwrap()
}

fn limits() -> ServeLimits {
    ServeLimits {
        drain: Duration::from_secs(5),
        ..ServeLimits::default()
    }
}
