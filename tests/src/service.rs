//! `supervisor-svc` as a process that can be killed at any moment. Its data directory and a registry in this process
//! outlive it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::OnceLock,
};

use registry_svc::{Config, Registry};
use svc_kit::{
    auth::{Authenticator, Trust},
    listen::url_of,
    serve::ServeLimits,
    shutdown::Shutdown,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
    process::{Child, Command},
};

use rustix::process::Signal;

use crate::{
    client,
    process::{find, freeze, signal, terminate},
    within,
};

/// Returns the path of the binary: the value of `TROUPE_SUPERVISOR_BIN`, otherwise the file next to the test
/// executables; see [`crate::process`].
fn supervisor() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| find("TROUPE_SUPERVISOR_BIN", "supervisor-svc", "supervisor-svc"))
}

/// The environment that outlives the service. The registry knows the embedded roles and no project.
#[derive(Debug)]
pub struct Ground {
    files: TempDir,
    registry: SocketAddr,
}

/// One process of the service. Calls from this machine are an operator's, and no runner is attached.
#[derive(Debug)]
pub struct Service {
    process: Child,
    address: SocketAddr,
}

impl Ground {
    /// Creates an empty data directory and starts a registry.
    pub async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let registry = Registry::open(Config::default()).unwrap();
        let authenticator = Authenticator::new().trust(Trust::Loopback);
        let serving = registry.serve(listener, authenticator, ServeLimits::default(), Shutdown::new());
        tokio::spawn(async move { serving.await.unwrap() });
        Self {
            files: tempfile::tempdir().unwrap(),
            registry: address,
        }
    }

    /// Starts the service with these arguments on a free port and returns after it reports that it is serving.
    ///
    /// # Panics
    ///
    /// If the process ends before it serves. A failing test displays the log of the process.
    pub async fn start(&self, arguments: &[&str]) -> Service {
        self.start_at("127.0.0.1:0", arguments).await
    }

    /// Starts the service on this address, as [`Self::start`].
    ///
    /// # Panics
    ///
    /// If the process ends before it serves.
    pub async fn start_at(&self, address: &str, arguments: &[&str]) -> Service {
        let mut process = Command::new(supervisor())
            .env_clear()
            .current_dir(self.files.path())
            .args(["--supervisor-listen", address, "--registry-url"])
            .arg(url_of(self.registry))
            .arg("--data-dir")
            .arg(self.files.path().join("data"))
            .args(["--log", "warn,supervisor_log=info,supervisor_svc=info"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = within("the report that the supervisor serves", async {
            loop {
                let line = log
                    .next_line()
                    .await
                    .unwrap()
                    .expect("the supervisor serves before it ends");
                show(&line);
                if let Some(address) = serving_at(&line) {
                    return address;
                }
            }
        })
        .await;
        // Reads the pipe to its end, so that the process never blocks on it.
        tokio::spawn(async move {
            while let Ok(Some(line)) = log.next_line().await {
                show(&line);
            }
        });
        Service { process, address }
    }
}

impl Service {
    /// Returns a client of the service.
    #[must_use]
    pub fn client(&self) -> client::Supervisor {
        client::supervisor(self.address, None)
    }

    /// Returns the address of the service.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a client of the runner service.
    #[must_use]
    pub fn runners(&self) -> client::Runners {
        client::runners(self.address, None)
    }

    /// Sends SIGKILL.
    pub async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    /// Sends SIGTERM and returns the exit status.
    pub async fn terminate(mut self) -> ExitStatus {
        terminate(&self.process);
        within("its end", self.process.wait()).await.unwrap()
    }

    /// Stops the process without ending it.
    pub fn freeze(&self) {
        freeze(&self.process);
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Continues the process.
    pub fn thaw(&self) {
        signal(&self.process, Signal::CONT);
    }
}

/// Returns the address in the log line of a serving service.
fn serving_at(line: &str) -> Option<SocketAddr> {
    let (_, said) = line.split_once("supervisor-svc serves address=")?;
    said.split_whitespace().next()?.parse().ok()
}

#[expect(clippy::print_stderr, reason = "a test that fails shows what the service logged")]
fn show(line: &str) {
    eprintln!("{line}");
}
