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

/// Time limit for a pair to become ready on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(30);

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

pub fn run(home: &Path, arguments: &[&str]) -> Output {
    troupe(home).args(arguments).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A separate pair, stopped when it is dropped.
pub struct Up {
    pub home: TempDir,
    process: Child,
    registry: String,
    supervisor: String,
}

impl Up {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a pair with additional flags.
    pub fn start_with(flags: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".git")).unwrap();
        let ready = home.path().join("ready.json");
        let mut process = troupe(home.path())
            .args([
                "up",
                "--registry-listen",
                "127.0.0.1:0",
                "--supervisor-listen",
                "127.0.0.1:0",
                "--ready-file",
            ])
            .arg(&ready)
            .args(flags)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let addresses = wait_for_ready(&ready, &mut process);
        let address = |service: &str| format!("http://{}", addresses[service].as_str().unwrap());
        Self {
            registry: address("registry"),
            supervisor: address("supervisor"),
            home,
            process,
        }
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

    pub fn run(&self, arguments: &[&str]) -> Output {
        let service = ["--registry", &self.registry, "--supervisor", &self.supervisor];
        run(self.home.path(), &[arguments, &service].concat())
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

    /// Starts the killed pair again on the same data and addresses.
    pub fn restart(&mut self) {
        let ready = self.home.path().join("ready.json");
        fs::remove_file(&ready).unwrap();
        let address = |url: &str| url.strip_prefix("http://").unwrap().to_owned();
        self.process = troupe(self.home.path())
            .args(["up", "--registry-listen", &address(&self.registry)])
            .args(["--supervisor-listen", &address(&self.supervisor), "--ready-file"])
            .arg(&ready)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_ready(&ready, &mut self.process);
    }

    /// Stops the pair like Ctrl-C and waits for its exit.
    pub fn stop(mut self) -> Option<i32> {
        interrupt(self.process.id());
        self.process.wait().unwrap().code()
    }
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
        let mut process = troupe(up.home.path())
            .args(arguments)
            .args(["--supervisor", up.supervisor(), "--registry", up.registry()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Returns the next line with this text.
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
pub fn wait_for_ready(path: &Path, process: &mut Child) -> Value {
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
