//! A machine whose disk or clock a test controls: a data directory, a registry, and the supervisor as a process with a
//! preloaded library. The libraries are the C files in `tests/faults/`; they need Linux and its dynamic linker.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use tempfile::TempDir;
use tokio::process::{Child, Command};
use troupe_tests::{
    client,
    process::{Home, Ready, service, terminate},
    within,
};

/// Name of the data directory.
pub const DATA: &str = "data";

/// A machine. It outlives the supervisors that are started on it.
pub struct Machine {
    base: PathBuf,
    /// Environment of a process that uses the library.
    environment: Vec<(&'static str, PathBuf)>,
    registry_url: String,
    _registry: Child,
    _home: Home,
    _files: TempDir,
}

/// One process of the supervisor. Calls from this machine are an operator's, and no runner is attached.
pub struct Life {
    process: Child,
    address: SocketAddr,
    _home: Home,
}

impl Machine {
    /// Creates a machine with a library. Each variable is set to the path of a file in the machine's directory.
    pub async fn with(library: &str, files: &[(&'static str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // The library compares paths, so they must not contain links.
        let base = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir(base.join(DATA)).unwrap();
        let mut environment = vec![("LD_PRELOAD", compiled(library, &base))];
        environment.extend(files.iter().map(|(variable, name)| (*variable, base.join(name))));
        let home = Home::default();
        let (mut command, ready) = service(&home, "registry");
        let (registry, address) = ready.start(command.args(["--log", "warn"])).await;
        Self {
            base,
            environment,
            registry_url: format!("http://{address}"),
            _registry: registry,
            _home: home,
            _files: directory,
        }
    }

    /// Returns the path of a file of the machine.
    pub fn path(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// Replaces a file that the library reads, atomically.
    pub fn put(&self, name: &str, text: &str) {
        let aside = self.path("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(aside, self.path(name)).unwrap();
    }

    /// Makes a process load the library when it starts.
    pub fn equip<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.envs(self.environment.iter().map(|(variable, value)| (*variable, value)))
    }

    /// Returns the command of the supervisor with a home directory, and its ready file.
    pub fn supervisor(&self, home: &Home) -> (Command, Ready) {
        let (mut command, ready) = service(home, "supervisor");
        self.equip(&mut command)
            .args(["--log", "warn", "--registry-url", &self.registry_url, "--data-dir"])
            .arg(self.path(DATA));
        (command, ready)
    }

    /// Starts the supervisor with these arguments and waits until it serves.
    pub async fn start(&self, arguments: &[&str]) -> Life {
        let home = Home::default();
        let (mut command, ready) = self.supervisor(&home);
        let (process, address) = ready.start(command.args(arguments)).await;
        Life {
            process,
            address,
            _home: home,
        }
    }
}

impl Life {
    /// Returns a client without a token.
    pub fn client(&self) -> client::Supervisor {
        client::supervisor(self.address, None)
    }

    /// Returns a client with a token.
    pub fn with_token(&self, token: &str) -> client::Supervisor {
        client::supervisor(self.address, Some(token))
    }

    /// Returns a client of the runner service.
    pub fn runners(&self) -> client::Runners {
        client::runners(self.address, None)
    }

    /// Returns the supervisor's URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends SIGKILL.
    pub async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    /// Sends SIGTERM and returns the exit status.
    pub async fn terminate(self) -> ExitStatus {
        terminate(&self.process);
        self.ended().await
    }

    /// Waits for the exit status.
    pub async fn ended(mut self) -> ExitStatus {
        within("the end of the supervisor", self.process.wait()).await.unwrap()
    }
}

/// Compiles a library with the C compiler in `CC`, by default `cc`.
fn compiled(name: &str, into: &Path) -> PathBuf {
    let library = into.join(format!("{name}.so"));
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = std::process::Command::new(compiler)
        .args(["-std=gnu11", "-pthread", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("faults/{name}.c")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}
