//! The measured services, as processes. Their memory is separate, and they share no threads with their callers.

use std::{
    env, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{self, Stdio},
    thread,
    time::Duration,
};

use registry_svc::Registry;
use supervisor_core::settings::Limits;
use supervisor_svc::{Config, Supervisor, UpkeepLimits};
use svc_kit::{
    auth::{Authenticator, Trust},
    listen::url_of,
    paths::DataDir,
    serve::ServeLimits,
    shutdown::Shutdown,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStdin, ChildStdout, Command},
};
use tokio_util::sync::CancellationToken;
use troupe_proto::supervisor::v1::CreateSessionRequest;
use troupe_runner::{ProcessProgram, RunnerConfig};
use troupe_tests::{client, tree::Tree, within};

use crate::raw::{self, Behind};

/// The first argument of a process that runs a service.
pub(crate) const ROLE: &str = "--serve";
/// The first argument of a process that runs as an agent.
pub(crate) const AGENT: &str = "--agent";

const REGISTRY: &str = "registry";
const SUPERVISOR: &str = "supervisor";
const GUARDED: &str = "guarded";
const RUNNER: &str = "runner";
const RAW: &str = "raw";

/// The schedule of passivation and of snapshots.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Upkeep {
    /// The default configuration.
    Usual,
    /// No passivation and no snapshots.
    Never,
    /// Passivation as soon as a session is idle.
    AtOnce,
}

impl Upkeep {
    const ALL: [Self; 3] = [Self::Usual, Self::Never, Self::AtOnce];

    fn limits(self) -> UpkeepLimits {
        let usual = UpkeepLimits::default();
        match self {
            Self::Usual => usual,
            Self::Never => UpkeepLimits {
                idle: Duration::from_secs(24 * 60 * 60),
                snapshot_every: u64::MAX,
                ..usual
            },
            Self::AtOnce => UpkeepLimits {
                idle: Duration::from_millis(1),
                ..usual
            },
        }
    }
}

/// A service in a separate process. Dropping this value ends the process.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    process: Child,
    asks: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
    data: TempDir,
}

impl Served {
    /// Starts a registry with the embedded roles and the projects below a directory.
    pub(crate) async fn registry(projects: Option<&Path>) -> Self {
        let root = projects.map(|path| path.display().to_string());
        Self::start(REGISTRY, new_data(), root.as_slice()).await
    }

    /// Starts a supervisor with an empty data directory and the highest possible limits.
    pub(crate) async fn supervisor(registry: SocketAddr, upkeep: Upkeep) -> Self {
        Self::supervisor_over(new_data(), registry, upkeep).await
    }

    /// Starts a supervisor whose log is in the database `store`.
    pub(crate) async fn supervisor_with(store: &str, registry: SocketAddr) -> Self {
        let more = [url_of(registry), format!("{:?}", Upkeep::Usual), store.to_owned()];
        Self::start(SUPERVISOR, new_data(), &more).await
    }

    /// Starts a supervisor with the default limits on calls and connections.
    pub(crate) async fn guarded_supervisor(registry: SocketAddr) -> Self {
        Self::start(GUARDED, new_data(), &[url_of(registry)]).await
    }

    /// Kills the supervisor with SIGKILL and starts it again with the same data directory.
    pub(crate) async fn again(self, registry: SocketAddr, upkeep: Upkeep) -> Self {
        let Self { mut process, data, .. } = self;
        process.kill().await.unwrap();
        Self::supervisor_over(data, registry, upkeep).await
    }

    async fn supervisor_over(data: TempDir, registry: SocketAddr, upkeep: Upkeep) -> Self {
        Self::start(SUPERVISOR, data, &[url_of(registry), format!("{upkeep:?}")]).await
    }

    /// Starts a runner of a supervisor. The runner starts this program as its agents.
    pub(crate) async fn runner(supervisor: SocketAddr) -> Self {
        Self::start(RUNNER, new_data(), &[url_of(supervisor)]).await
    }

    /// Starts the service of [`raw`] with responses of `answer` bytes.
    pub(crate) async fn raw(answer: usize, behind: Option<Behind>) -> Self {
        let behind = behind.map(|behind| [behind.address.to_string(), behind.question.to_string()]);
        let arguments = [&[answer.to_string()][..], behind.as_slice().as_flattened()].concat();
        Self::start(RAW, new_data(), &arguments).await
    }

    async fn start(role: &str, data: TempDir, more: &[String]) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args([ROLE, role])
            .arg(data.path())
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let asks = process.stdin.take().unwrap();
        let mut says = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = says.next_line().await.unwrap().expect("the process prints its address");
        Self {
            address: address.parse().unwrap(),
            process,
            asks,
            says,
            data,
        }
    }

    /// Returns the data directory.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Opens a session of the supervisor.
    pub(crate) async fn tree(&self) -> Tree {
        Tree::open(client::supervisor(self.address, None), CreateSessionRequest::default()).await
    }

    /// Waits until the supervisor has no session in memory.
    pub(crate) async fn at_rest(&mut self) {
        self.asks.write_all(b"at rest?\n").await.unwrap();
        within("rest", self.says.next_line())
            .await
            .unwrap()
            .expect("the process is running");
    }

    /// Returns the processor time of the process; `None` where the system has no `/proc`.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        processor_time(self.process.id()?)
    }

    /// Returns the resident memory of the process, in KiB; `None` where the system has no `/proc`.
    pub(crate) fn resident(&self) -> Option<f64> {
        resident(self.process.id()?)
    }
}

/// Returns the processor time of a process; `None` where the system has no `/proc`.
pub(crate) fn processor_time(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The fields after the name. The name is in parentheses and may contain any character. A tick is 10 ms.
    let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
    let ticks: u64 = [11, 12]
        .iter()
        .filter_map(|field| fields.get(*field)?.parse::<u64>().ok())
        .sum();
    Some(Duration::from_millis(ticks * 10))
}

/// Returns the resident memory of a process, in KiB; `None` where the system has no `/proc`.
pub(crate) fn resident(process: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn new_data() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Runs the service that the arguments describe, until the parent process ends.
pub(crate) async fn run(role: &[String]) {
    let listener = listen().await;
    println!("{}", listener.local_addr().unwrap());
    let role: Vec<&str> = role.iter().map(String::as_str).collect();
    match &role[..] {
        [REGISTRY, _, projects @ ..] => {
            obey(|| true);
            let registry = Registry::open(registry_svc::Config {
                workspace_roots: projects.iter().map(PathBuf::from).collect(),
                ..registry_svc::Config::default()
            });
            let serving = registry.unwrap().serve(listener, trusting(), limits(), Shutdown::new());
            Box::pin(serving).await.unwrap();
        }
        [SUPERVISOR, data, registry, upkeep, store @ ..] => {
            let data = DataDir::open(Path::new(data)).unwrap();
            let mut config = Config::new(data.path().to_owned(), (*registry).to_owned());
            config.limits = Limits::CEILING;
            config.max_group_items = 10_000;
            let upkeep = Upkeep::ALL.into_iter().find(|known| format!("{known:?}") == *upkeep);
            config.upkeep = upkeep.expect("an upkeep").limits();
            config.postgres = store.first().map(|url| url.parse().unwrap());
            let supervisor = Supervisor::open(config).await.unwrap();
            let observed = supervisor.clone();
            obey(move || observed.loaded_sessions() == 0);
            let serving = supervisor.serve(listener, trusting(), limits(), Shutdown::new());
            Box::pin(serving).await.unwrap();
        }
        [GUARDED, data, registry] => {
            obey(|| true);
            let data = DataDir::open(Path::new(data)).unwrap();
            let config = Config::new(data.path().to_owned(), (*registry).to_owned());
            let supervisor = Supervisor::open(config).await.unwrap();
            let serving = supervisor.serve(listener, trusting(), ServeLimits::default(), Shutdown::new());
            Box::pin(serving).await.unwrap();
        }
        [RUNNER, data, supervisor] => {
            obey(|| true);
            let program = ProcessProgram::new(env::current_exe().unwrap(), [AGENT]);
            let config = RunnerConfig::new("bench", *supervisor, program, *data);
            troupe_runner::run(config, CancellationToken::new()).await.unwrap();
        }
        [RAW, _, answer, behind @ ..] => {
            obey(|| true);
            let behind = match behind {
                [address, question] => Some(Behind {
                    address: address.parse().unwrap(),
                    question: question.parse().unwrap(),
                }),
                _ => None,
            };
            raw::serve(listener, answer.parse().unwrap(), behind).await;
        }
        other => panic!("{other:?} is not a role"),
    }
}

/// Answers each line on standard input once this process is idle. Ends the process when its parent ends.
fn obey(is_at_rest: impl Fn() -> bool + Send + 'static) {
    thread::spawn(move || {
        for _ in io::stdin().lines().map_while(Result::ok) {
            while !is_at_rest() {
                thread::park_timeout(Duration::from_millis(1));
            }
            println!("at rest");
        }
        process::exit(0);
    });
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// Returns limits that the load program does not reach. The service counts all calls of the program as calls of one
/// caller.
fn limits() -> ServeLimits {
    ServeLimits {
        max_calls_in_flight: 1 << 20,
        max_calls_per_caller: 1 << 20,
        max_waits: 1 << 20,
        max_waits_per_caller: 1 << 20,
        max_open_streams_per_caller: 1 << 20,
        ..ServeLimits::default()
    }
}

/// Calls from this machine are an operator's.
fn trusting() -> Authenticator {
    Authenticator::new().trust(Trust::Loopback)
}
