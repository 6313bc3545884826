//! The `troupe` binary as a process.

use std::{
    env,
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
    sync::OnceLock,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use crate::{client, within};

/// Returns the path of the binary: the value of `TROUPE_BIN`, otherwise see [`find`].
pub fn troupe() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| find("TROUPE_BIN", "troupe-cli", "troupe"))
}

/// Returns the path of a binary of the workspace: the value of the variable, otherwise the file next to the test
/// executables, where `cargo test --workspace` puts it. A missing binary is built; an existing one is not rebuilt. To
/// run this package alone after a change, first run `cargo build -p PACKAGE`.
pub fn find(variable: &str, package: &str, name: &str) -> PathBuf {
    if let Some(path) = env::var_os(variable) {
        return path.into();
    }
    // <target>/<profile>/deps/<test>
    let test = env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let binary = profile.join(name);
    if !binary.exists() {
        build(profile, package, name);
    }
    binary
}

fn build(profile: &Path, package: &str, name: &str) {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command
        .args(["build", "--locked", "-p", package, "--bin", name, "--target-dir"])
        .arg(profile.parent().unwrap())
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        command.arg("--release");
    }
    assert!(command.status().unwrap().success(), "{name} cannot be built");
}

/// A home directory that processes share, with their data, ready files and logs.
#[derive(Debug)]
pub struct Home {
    directory: TempDir,
}

impl Default for Home {
    fn default() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }
}

impl Home {
    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a command of `troupe` whose environment contains only this home.
    pub fn troupe(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(troupe());
        command
            .env_clear()
            .env("HOME", self.path())
            .current_dir(self.path())
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Returns the operator's token in the default data directory of this home.
    ///
    /// # Panics
    ///
    /// If the file does not exist.
    #[must_use]
    pub fn operator_token(&self) -> String {
        let path = self.path().join(".local/share/troupe/operator.token");
        fs::read_to_string(path).unwrap().trim().to_owned()
    }

    /// Runs `troupe` and waits for its exit.
    pub async fn run(&self, arguments: &[&str]) -> Output {
        within("the end of troupe", self.troupe(arguments).output())
            .await
            .unwrap()
    }
}

/// Returns what a process wrote to standard error.
#[must_use]
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the command of `NAME-svc` on a free port with an empty environment, and its ready file. Calls from this
/// machine are an operator's.
///
/// # Panics
///
/// If the name is unknown.
pub fn service(home: &Home, name: &str) -> (Command, Ready) {
    let (variable, package) = match name {
        "registry" => ("TROUPE_REGISTRY_BIN", "registry-svc"),
        "supervisor" => ("TROUPE_SUPERVISOR_BIN", "supervisor-svc"),
        other => panic!("{other} is not a service"),
    };
    let file = home.path().join(format!("{name}.json"));
    let mut command = Command::new(find(variable, package, package));
    command
        .env_clear()
        .env("HOME", home.path())
        .current_dir(home.path())
        .arg(format!("--{name}-listen"))
        .args(["127.0.0.1:0", "--ready-file"])
        .arg(&file)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let name = name.to_owned();
    (command, Ready { name, file })
}

/// The ready file of a service.
#[derive(Debug)]
pub struct Ready {
    name: String,
    file: PathBuf,
}

impl Ready {
    /// Starts the service and waits until it serves. Returns its process and its address.
    pub async fn start(&self, command: &mut Command) -> (Child, SocketAddr) {
        let process = command.spawn().unwrap();
        let address = within("a service that serves", self.address()).await;
        (process, address.parse().unwrap())
    }

    /// Waits until the service serves and returns its address.
    pub async fn address(&self) -> String {
        self.said(&self.name).await
    }

    /// Waits for the log line with the admin port and returns the address.
    ///
    /// # Panics
    ///
    /// If the process has ended.
    pub async fn admin(&self) -> String {
        self.said("admin").await
    }

    async fn said(&self, name: &str) -> String {
        loop {
            let text = fs::read_to_string(&self.file).unwrap_or_default();
            if let Ok(said) = serde_json::from_str::<Value>(&text) {
                return said[name].as_str().unwrap().to_owned();
            }
            tokio::task::yield_now().await;
        }
    }
}

/// `troupe up`. By default it runs no runner: calls from this machine are an operator's, and threads do not start.
#[derive(Debug)]
pub struct Up {
    process: Child,
    /// Open to the end, so that the process never writes to a closed pipe.
    _output: Lines<BufReader<ChildStdout>>,
    /// Content of the ready file.
    pub ready: Value,
    /// Address of the registry.
    pub registry: SocketAddr,
    /// Address of the supervisor.
    pub supervisor: SocketAddr,
}

impl Up {
    /// Arguments of `up` on free ports.
    pub const ARGUMENTS: &[&str] = &[
        "up",
        "--no-runner",
        "--registry-listen",
        "127.0.0.1:0",
        "--supervisor-listen",
        "127.0.0.1:0",
    ];

    /// Arguments of `up` with a runner for the sample agent. Callers then need the operator's token.
    pub const WITH_RUNNER: &[&str] = &[
        "up",
        "--registry-listen",
        "127.0.0.1:0",
        "--supervisor-listen",
        "127.0.0.1:0",
    ];

    /// Starts the process without a runner and returns after it reports that it is ready.
    ///
    /// # Panics
    ///
    /// If the process does not become ready. The message contains its log.
    pub async fn start(home: &Home) -> Self {
        Self::start_with(home, Self::ARGUMENTS).await
    }

    /// Starts the process with these arguments, and otherwise does the same as [`Self::start`].
    ///
    /// # Panics
    ///
    /// If the process does not become ready. The message contains its log.
    pub async fn start_with(home: &Home, arguments: &[&str]) -> Self {
        let (ready, log) = (home.path().join("ready.json"), home.path().join("log"));
        let mut process = home
            .troupe(arguments)
            .args(["--output", "json", "--ready-file"])
            .arg(&ready)
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = within("the report that `up` is ready", output.next_line())
            .await
            .unwrap();
        let Some(line) = line else {
            panic!("`up` ended: {}", fs::read_to_string(log).unwrap());
        };
        let said: Value = serde_json::from_str(&line).unwrap();
        // The file is written before this line.
        let ready: Value = serde_json::from_str(&fs::read_to_string(ready).unwrap()).unwrap();
        for service in ["registry", "supervisor"] {
            assert_eq!(ready[service], said[service]);
        }
        let address = |service: &str| ready[service].as_str().unwrap().parse().unwrap();
        Self {
            registry: address("registry"),
            supervisor: address("supervisor"),
            process,
            _output: output,
            ready,
        }
    }

    /// Returns a client of the supervisor.
    #[must_use]
    pub fn client(&self) -> client::Supervisor {
        client::supervisor(self.supervisor, None)
    }

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id().unwrap()
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
}

/// Sends SIGTERM to a running process.
///
/// # Panics
///
/// If the process has ended.
pub fn terminate(process: &Child) {
    signal(process, Signal::TERM);
}

/// Sends a signal to a running process.
///
/// # Panics
///
/// If the process has ended.
pub fn signal(process: &Child, signal: Signal) {
    kill_process(id_of(process), signal).unwrap();
}

/// Stops all threads of a process and waits until they have stopped. After the signal, they continue for a while on a
/// busy machine.
///
/// # Panics
///
/// If the process has ended.
pub fn freeze(process: &Child) {
    signal(process, Signal::STOP);
    waitid(WaitId::Pid(id_of(process)), WaitIdOptions::STOPPED).unwrap();
}

fn id_of(process: &Child) -> Pid {
    let id = process.id().and_then(|id| i32::try_from(id).ok());
    id.and_then(Pid::from_raw).unwrap()
}
