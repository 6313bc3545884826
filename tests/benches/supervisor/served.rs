//! The services that are measured, as processes: so that their memory is theirs alone, and they share no threads with
//! those who call them.

use std::{
    env, fs, io,
    net::SocketAddr,
    path::Path,
    process::{self, Stdio},
    thread,
    time::Duration,
};

use registry_svc::Registry;
use supervisor_svc::{Config, Supervisor, domain::settings::Limits};
use svc_kit::{
    auth::{Authenticator, Trust},
    listen::url_of,
    paths::DataDir,
    serve::ServeLimits,
    shutdown::Shutdown,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
    process::{Child, Command},
};
use tokio_util::sync::CancellationToken;
use troupe_runner::{ProcessProgram, RunnerConfig};

use crate::floor::{self, Sizes};

/// The first argument of a process that serves.
pub(crate) const ROLE: &str = "--serve";

const SUPERVISOR: &str = "supervisor";
const FLOOR: &str = "floor";
const RUNNER: &str = "runner";
/// The first argument of a process that is an agent.
pub(crate) const AGENT: &str = "--agent";

/// A service in a process of its own, until it is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    process: Child,
    _data: TempDir,
}

impl Served {
    /// A supervisor over an empty data directory, with limits as high as they may be.
    pub(crate) async fn supervisor(registry: SocketAddr) -> Self {
        Self::start(SUPERVISOR, &[url_of(registry)]).await
    }

    /// What [`floor`] is, asking the echo.
    pub(crate) async fn floor(echo: SocketAddr, sizes: Sizes) -> Self {
        let Sizes { question, row, answer } = sizes;
        let sizes = [question, row, answer].map(|size| size.to_string());
        Self::start(FLOOR, &[&[echo.to_string()][..], &sizes[..]].concat()).await
    }

    /// A runner of a supervisor, whose agents are this program once more.
    pub(crate) async fn runner(supervisor: SocketAddr) -> Self {
        Self::start(RUNNER, &[url_of(supervisor)]).await
    }

    async fn start(role: &str, more: &[String]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut process = Command::new(env::current_exe().unwrap())
            .args([ROLE, role])
            .arg(data.path())
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = said.next_line().await.unwrap().expect("it says where it serves");
        Self {
            address: address.parse().unwrap(),
            process,
            _data: data,
        }
    }

    /// What it has spent on the processor; `None` where the system has no `/proc`.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()?)).ok()?;
        // The fields after the name, which is in parentheses and may hold anything; ticks are hundredths of a second.
        let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
        let ticks: u64 = [11, 12]
            .iter()
            .filter_map(|field| fields.get(*field)?.parse::<u64>().ok())
            .sum();
        Some(Duration::from_millis(ticks * 10))
    }

    /// How much of its memory is resident, in KiB; `None` where the system has no `/proc`.
    pub(crate) fn resident(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    }
}

/// A registry in this process that knows the embedded roles.
pub(crate) async fn registry() -> SocketAddr {
    let listener = listen().await;
    let address = listener.local_addr().unwrap();
    let registry = Registry::open(registry_svc::Config::default()).unwrap();
    let serving = registry.serve(listener, trusting(), ServeLimits::default(), Shutdown::new());
    tokio::spawn(async move { serving.await.unwrap() });
    address
}

/// Serves as told, until the process that told it ends.
pub(crate) async fn run(role: &[String]) {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0);
    });
    let listener = listen().await;
    println!("{}", listener.local_addr().unwrap());
    let role: Vec<&str> = role.iter().map(String::as_str).collect();
    match role[..] {
        [SUPERVISOR, data, registry] => {
            let data = DataDir::open(Path::new(data)).unwrap();
            let mut config = Config::new(data.path().to_owned(), registry.to_owned());
            config.limits = Limits::CEILING;
            let supervisor = Supervisor::open(config).await.unwrap();
            let serving = supervisor.serve(listener, trusting(), ServeLimits::default(), Shutdown::new());
            Box::pin(serving).await.unwrap();
        }
        [RUNNER, data, supervisor] => {
            let program = ProcessProgram::new(env::current_exe().unwrap(), [AGENT]);
            let config = RunnerConfig::new("bench", supervisor, program, data);
            troupe_runner::run(config, CancellationToken::new()).await.unwrap();
        }
        [FLOOR, data, echo, question, row, answer] => {
            let sizes = Sizes {
                question: question.parse().unwrap(),
                row: row.parse().unwrap(),
                answer: answer.parse().unwrap(),
            };
            floor::serve(listener, Path::new(data), echo.parse().unwrap(), sizes).await;
        }
        _ => panic!("{role:?} is no role"),
    }
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// Calls from this machine are an operator's.
fn trusting() -> Authenticator {
    Authenticator::new().trust(Trust::Loopback)
}
