//! A registry with a home and a project of its own, served on a free port.

use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
};

use registry_svc::{Config, Registry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Status,
    transport::{Channel, Server, server::TcpIncoming},
};
use troupe_proto::{
    common::v1::ResolvedSpawn,
    fault::reason_of,
    reason::Reason,
    registry::v1::{
        ListAgentsRequest, ListAgentsResponse, ResolveSpawnRequest,
        agent_registry_service_client::AgentRegistryServiceClient,
    },
};

/// Checks the code, the reason and the start of the text of a status.
pub(crate) fn assert_fault(status: &Status, code: Code, reason: Reason, text: &str) {
    assert_eq!(status.code(), code, "{status}");
    assert_eq!(reason_of(status), Some(reason), "{status}");
    assert!(status.message().starts_with(text), "{}", status.message());
}

/// Returns the text of a role with this prompt.
pub(crate) fn plain(prompt: impl Display) -> String {
    format!("---\ndescription: d\n---\n{prompt}\n")
}

/// The files and the service. The workspace root has `home/` and the repository `repo/`, whose directory `a/` is the
/// working directory of most calls.
pub(crate) struct Site {
    _guard: tempfile::TempDir,
    /// The workspace root.
    pub(crate) base: PathBuf,
    /// The served registry.
    pub(crate) registry: Registry,
    /// Ends the streams.
    pub(crate) draining: CancellationToken,
    client: AgentRegistryServiceClient<Channel>,
}

impl Site {
    /// Creates a site without seeding.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// Creates a site with seeding.
    pub(crate) async fn seeded() -> Self {
        Self::with(|config| config.seed = true).await
    }

    /// Creates a site with a changed configuration.
    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(guard.path()).unwrap().join("root");
        for directory in ["home", "repo/.git", "repo/a"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        let mut config = Config {
            home: Some(base.join("home")),
            workspace_roots: vec![base.clone()],
            ..Config::default()
        };
        change(&mut config);
        let registry = Registry::open(config).unwrap();
        let draining = CancellationToken::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder().add_service(registry.service_until(draining.clone()));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))));
        let client = AgentRegistryServiceClient::connect(format!("http://{address}"))
            .await
            .unwrap();
        Self {
            _guard: guard,
            base,
            registry,
            draining,
            client,
        }
    }

    pub(crate) fn client(&self) -> AgentRegistryServiceClient<Channel> {
        self.client.clone()
    }

    /// The working directory of the requests below.
    pub(crate) fn cwd(&self) -> String {
        self.base.join("repo/a").display().to_string()
    }

    /// Writes a file under the workspace root.
    pub(crate) fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.base.join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes a role of the repository.
    pub(crate) fn role(&self, name: &str, text: &str) -> PathBuf {
        self.write(&format!("repo/.codex/.agents/{name}.md"), text)
    }

    pub(crate) fn all(&self) -> ListAgentsRequest {
        ListAgentsRequest {
            cwd: self.cwd(),
            ..ListAgentsRequest::default()
        }
    }

    pub(crate) fn only(&self, agent_type: &str) -> ListAgentsRequest {
        ListAgentsRequest {
            agent_type: Some(agent_type.to_owned()),
            ..self.all()
        }
    }

    pub(crate) fn spawn(&self, agent_type: &str) -> ResolveSpawnRequest {
        ResolveSpawnRequest {
            cwd: self.cwd(),
            agent_type: Some(agent_type.to_owned()),
            ..ResolveSpawnRequest::default()
        }
    }

    pub(crate) async fn list(&self, request: ListAgentsRequest) -> Result<ListAgentsResponse, Status> {
        self.client()
            .list_agents(request)
            .await
            .map(tonic::Response::into_inner)
    }

    pub(crate) async fn resolve(&self, request: ResolveSpawnRequest) -> Result<ResolvedSpawn, Status> {
        let answer = self.client().resolve_spawn(request).await?.into_inner();
        Ok(answer.resolved.unwrap())
    }
}
