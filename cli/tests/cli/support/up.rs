//! Runs the `troupe` binary as a process.

use std::{
    fs,
    io::{BufRead as _, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{Client, TIME_LIMIT};

/// Returns a command for the binary without Troupe's environment variables.
pub fn troupe(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_troupe"));
    command
        .env_clear()
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(home)
        .stdin(Stdio::null());
    command
}

/// Returns the arguments of a command line without quotes.
pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

pub fn run(home: &Path, arguments: &[&str]) -> Output {
    troupe(home).args(arguments).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Checks that a command succeeded, and returns its text output.
#[track_caller]
pub fn succeeded(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(output), stderr(output));
    stdout(output)
}

/// Checks that a command failed with this exit code, and that its error output contains this text.
#[track_caller]
pub fn fails(output: &Output, code: i32, text: &str) {
    let error = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.contains(text), "{text:?} is not in {error}");
}

/// The flag of a pair without a runner: threads stay in the state that the service assigns.
pub const NO_RUNNER: &str = "--no-runner";

/// An address with any free port of this machine.
const FREE: &str = "127.0.0.1:0";

/// A separate pair. Dropping it stops the pair.
pub struct Up {
    pub home: TempDir,
    pub process: Child,
    registry: String,
    supervisor: String,
}

impl Up {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a pair with additional flags.
    pub fn start_with(flags: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), flags)
    }

    /// Like [`Self::start_with`], in a home directory that may contain data.
    pub fn start_in(home: TempDir, flags: &[&str]) -> Self {
        fs::create_dir_all(home.path().join(".git")).unwrap();
        let (process, registry, supervisor) = launch(home.path(), [FREE, FREE], flags);
        Self {
            home,
            process,
            registry,
            supervisor,
        }
    }

    /// Returns a command against this pair.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = troupe(self.home.path());
        command
            .args(arguments)
            .args(["--supervisor", &self.supervisor, "--registry", &self.registry]);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command against this pair and returns its JSON output.
    pub fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = self.run(&[arguments, &["--output", "json"]].concat());
        let text = if output.stdout.is_empty() {
            stderr(&output)
        } else {
            stdout(&output)
        };
        let value = serde_json::from_str(text.lines().next().unwrap_or_default());
        (
            output.status.code(),
            value.unwrap_or_else(|error| panic!("{error}: {text} {}", stderr(&output))),
        )
    }

    /// Runs a command that has to succeed, and returns its JSON output.
    #[track_caller]
    pub fn succeeds(&self, arguments: &[&str]) -> Value {
        let (code, answer) = self.json(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {answer}");
        answer
    }

    /// Runs a command that has to succeed, and returns its text output.
    #[track_caller]
    pub fn text(&self, arguments: &[&str]) -> String {
        succeeded(&self.run(arguments))
    }

    /// Spawns an agent, and returns the ids of its session and its thread.
    #[track_caller]
    pub fn spawn(&self, arguments: &[&str]) -> (String, String) {
        let answer = self.succeeds(&[&["spawn"], arguments].concat());
        let id = |value: &Value| value.as_str().unwrap().to_owned();
        (id(&answer["session_id"]), id(&answer["thread"]["thread_id"]))
    }

    /// Like [`Self::spawn`], and waits until the agent has completed its turn.
    #[track_caller]
    pub fn complete(&self, arguments: &[&str]) -> (String, String) {
        self.spawn(&[arguments, &["--wait"]].concat())
    }

    /// Connects to the supervisor.
    pub async fn client(&self) -> Client {
        Client::connect(self.supervisor.clone()).await.unwrap()
    }

    pub fn supervisor(&self) -> &str {
        &self.supervisor
    }

    pub fn registry(&self) -> &str {
        &self.registry
    }

    pub fn data_dir(&self) -> PathBuf {
        self.home.path().join(".local/share/troupe")
    }

    /// Kills the pair.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Restarts the stopped pair on the same data and addresses.
    pub fn restart(&mut self) {
        let addresses = [&self.registry, &self.supervisor].map(|url| url.strip_prefix("http://").unwrap());
        let (process, ..) = launch(self.home.path(), addresses, &[]);
        self.process = process;
    }

    /// Restarts the stopped pair on the same data with other addresses and flags.
    pub fn start_again(&mut self, flags: &[&str]) {
        (self.process, self.registry, self.supervisor) = launch(self.home.path(), [FREE, FREE], flags);
    }

    /// Stops the pair like Ctrl-C and waits for its exit.
    pub fn interrupt(&mut self) -> Option<i32> {
        interrupt(self.process.id());
        self.process.wait().unwrap().code()
    }

    /// Like [`Self::interrupt`], and removes its data.
    pub fn stop(mut self) -> Option<i32> {
        self.interrupt()
    }
}

/// Checks that a service rejects a command with this exit code and this reason. Returns the error.
#[track_caller]
pub fn refused(up: &Up, arguments: &[&str], expected: i32, reason: &str) -> Value {
    let (code, answer) = up.json(arguments);
    assert_eq!(code, Some(expected), "{arguments:?}: {answer}");
    assert_eq!(answer["error"]["reason"], reason, "{answer}");
    answer["error"].clone()
}

/// Starts a pair with these addresses of its registry and supervisor, and waits until it is ready. Returns its URLs.
fn launch(home: &Path, [registry, supervisor]: [&str; 2], flags: &[&str]) -> (Child, String, String) {
    let ready = home.join("ready.json");
    let _ = fs::remove_file(&ready);
    let mut process = troupe(home)
        .args(["up", "--registry-listen", registry, "--supervisor-listen", supervisor])
        .arg("--ready-file")
        .arg(&ready)
        .args(flags)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let addresses = wait_for_ready(&ready, &mut process);
    let url = |service: &str| format!("http://{}", addresses[service].as_str().unwrap());
    let (registry, supervisor) = (url("registry"), url("supervisor"));
    (process, registry, supervisor)
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A command that writes until it is interrupted.
pub struct Watching {
    pub process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    pub fn start(up: &Up, arguments: &[&str]) -> Self {
        let mut process = up.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Returns the next line that contains this text.
    #[track_caller]
    pub fn until(&mut self, text: &str) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        lines.find(|line| line.contains(text)).expect("the output has the text")
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends SIGINT, like Ctrl-C.
pub fn interrupt(process: u32) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).unwrap();
    kill_process(process, Signal::INT).unwrap();
}

/// The ready file is created atomically, so its existence is sufficient.
fn wait_for_ready(path: &Path, process: &mut Child) -> Value {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        if let Ok(text) = fs::read_to_string(path) {
            return serde_json::from_str(&text).unwrap();
        }
        assert!(process.try_wait().unwrap().is_none(), "`up` ended before it was ready");
        assert!(Instant::now() < deadline, "`up` was not ready within {TIME_LIMIT:?}");
        thread::park_timeout(Duration::from_millis(10));
    }
}
