//! A project with templates, and registries over it.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use registry_svc::{Config, Registry};
use svc_kit::{
    auth::{Authenticator, Trust},
    serve::ServeLimits,
    shutdown::Shutdown,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tonic::transport::{Channel, Endpoint};

/// The directories of the project, one in the other, that have templates.
pub(crate) const DIRECTORIES: usize = 5;
/// How long the stamp of a file needs until it is trusted, and a second more: before that every call reads it again.
const SETTLE: Duration = Duration::from_secs(4);

/// A repository in a temporary directory.
pub(crate) struct Site {
    _guard: tempfile::TempDir,
    root: PathBuf,
    /// The deepest directory: from here all templates apply.
    cwd: PathBuf,
}

impl Site {
    /// A project with so many templates in each directory, old enough to be cached.
    pub(crate) async fn settled(templates: usize) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(guard.path()).unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        let mut cwd = root.clone();
        for directory in 0..DIRECTORIES {
            if directory > 0 {
                cwd.push(format!("d{directory}"));
            }
            let roles = cwd.join(".codex/.agents");
            fs::create_dir_all(&roles).unwrap();
            for number in 0..templates {
                write(&roles.join(format!("role-{directory}-{number}.md")), 0);
            }
        }
        tokio::time::sleep(SETTLE).await;
        Self {
            _guard: guard,
            root,
            cwd,
        }
    }

    pub(crate) fn cwd(&self) -> String {
        self.cwd.display().to_string()
    }

    /// Changes one template; `version` makes it another text each time.
    pub(crate) fn change(&self, version: usize) {
        write(&self.root.join(".codex/.agents/role-0-0.md"), version + 1);
    }

    /// A registry that has read nothing yet.
    pub(crate) fn registry(&self) -> Registry {
        Registry::open(Config {
            workspace_roots: vec![self.root.clone()],
            ..Config::default()
        })
        .unwrap()
    }
}

/// A role as people write them: lists, a persona, a page of text.
fn write(path: &Path, version: usize) {
    let text = format!(
        "---
description: Use it for measurements, version {version}.
model: gpt-5.2
reasoning_effort: medium
read_only: true
agent_names:
  - name: fast
    description: Quick.
allow_list: [exec_command, read_file, list_files, update_plan, \"mcp__*\"]
deny_list: [apply_patch]
---
{}
<!-- agent_name: fast -->
Be quick.
",
        "You answer questions about the code with exact references.\n".repeat(20)
    );
    fs::write(path, text).unwrap();
}

/// A registry that serves as in production, until it is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(registry: Registry) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let authenticator = Authenticator::new().trust(Trust::Loopback);
            let served = registry.serve(listener, authenticator, ServeLimits::default(), Shutdown::new());
            served.await.unwrap();
        });
        Self { address, task }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection of its own.
pub(crate) async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    endpoint.connect().await.unwrap()
}
