//! One child process in its own process group: its pipes, its signals and its end.
//!
//! Three tasks serve a [`Child`]: a writer, a reader and a watcher. The watcher owns the process. Even if another task
//! fails, the watcher returns only after the group was killed and the process was reaped.

#[cfg(any(test, feature = "fuzzing"))]
mod fake_child;
mod lines;

use std::{
    io,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{self, ChildStderr, ChildStdin, ChildStdout},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::fake_child::FakeChild;
use self::lines::BoundedLines;
pub(crate) use self::lines::Line;
use crate::{
    agent::{InputError, StartFailure, StopOrder, Stopped},
    group::{Group, describe},
    placeholders::Placeholders,
    process_spec::{self, ProcessSpec},
    text::clean,
};

/// Maximum number of lines that wait for the program to read them.
const UNREAD_LINES: usize = 64;
/// Maximum number of lines that wait for the runner. The number is low because each line may have the maximum length.
const LINE_CAPACITY: usize = 32;
/// Maximum size of the end of standard error that is kept for messages, in bytes.
const STDERR_TAIL_BYTES: usize = 4 * 1024;
/// Maximum time that a process may run after it closed its output, and that its output may stay open after its end.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// An event of a child.
#[derive(Debug)]
pub(crate) enum ChildEvent {
    /// The child wrote a line.
    Line(Line),
    /// The child and its whole process group have exited.
    Exited(Exit),
}

/// How a child ended.
#[derive(Clone, Debug)]
pub(crate) struct Exit {
    /// Display text, such as `exit status 1` or `killed by SIGKILL`.
    status: String,
    stderr: String,
}

impl Exit {
    /// Returns the message for a child that exited without a request to stop.
    pub(crate) fn complaint(&self) -> String {
        // Output from before the kill does not explain the kill.
        if self.status.starts_with("killed by") {
            return format!("the program was {}", self.status);
        }
        let stderr = clean(&self.stderr);
        match stderr.trim() {
            "" => format!("the program ended ({})", self.status),
            stderr => format!("the program ended ({}): {stderr}", self.status),
        }
    }
}

/// A running child. Dropping this value kills the child.
pub(crate) struct Child {
    kill_on_drop: KillOnDrop,
    input: ChildInput,
    exit: watch::Receiver<Option<Exit>>,
    /// The placeholders of the child's view of the file system.
    placeholders: Placeholders,
}

/// Kills the process group immediately when this value is dropped. The watcher does the rest.
struct KillOnDrop {
    group: Group,
    dropped: CancellationToken,
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.group.signal(Signal::KILL);
        self.dropped.cancel();
    }
}

/// The input of a child. It closes when all of its clones are dropped.
#[derive(Clone, Debug)]
pub(crate) struct ChildInput(mpsc::Sender<String>);

impl ChildInput {
    /// Queues a line for the program.
    pub(crate) fn write(&self, line: String) -> Result<(), InputError> {
        self.0.try_send(line).map_err(|_| InputError)
    }
}

/// The output of a child, until its end.
pub(crate) struct ChildOutput {
    lines: mpsc::Receiver<Line>,
    exit: watch::Receiver<Option<Exit>>,
}

impl ChildOutput {
    /// Returns the next line, or the exit after the last line. Cancel safe.
    pub(crate) async fn next_event(&mut self) -> ChildEvent {
        match self.lines.recv().await {
            Some(line) => ChildEvent::Line(line),
            None => ChildEvent::Exited(wait_for_exit(&mut self.exit).await),
        }
    }
}

impl Child {
    /// Starts a program. Lines of more than `longest_line` bytes are dropped.
    pub(crate) fn start(process: ProcessSpec, longest_line: usize) -> Result<(Self, ChildOutput), StartFailure> {
        let command = process.command.clone();
        Self::spawn(process, longest_line)
            .map_err(|error| StartFailure::no_program(format!("cannot start {}: {error}", command.display())))
    }

    fn spawn(process: ProcessSpec, longest_line: usize) -> io::Result<(Self, ChildOutput)> {
        let mut child = process_spec::start(process, Stdio::piped())?;
        let (Some(group), Some(stdin), Some(stdout), Some(stderr)) = (
            Group::of(&child),
            child.stdin.take(),
            child.stdout.take(),
            child.stderr.take(),
        ) else {
            return Err(io::Error::other("the process has no id or no pipes"));
        };

        let (input, to_write) = mpsc::channel(UNREAD_LINES);
        let (line_sender, lines) = mpsc::channel(LINE_CAPACITY);
        let (exited, exit) = watch::channel(None);
        let dropped = CancellationToken::new();
        let tail = Arc::<Mutex<Vec<u8>>>::default();
        tokio::spawn(write_lines(stdin, to_write));
        let reader = tokio::spawn(read_lines(stdout, longest_line, line_sender));
        let stderr_reader = tokio::spawn(keep_tail(stderr, Arc::clone(&tail)));
        let watcher = Watcher {
            child,
            group: group.clone(),
            reader,
            stderr_reader,
            tail,
            dropped: dropped.clone(),
        };
        tokio::spawn(async move {
            let exit = watcher.watch().await;
            exited.send_replace(Some(exit));
        });
        let output = ChildOutput {
            lines,
            exit: exit.clone(),
        };
        let child = Self {
            kill_on_drop: KillOnDrop { group, dropped },
            input: ChildInput(input),
            exit,
            placeholders: Placeholders::default(),
        };
        Ok((child, output))
    }

    /// Keeps the placeholders of the child's file system view until the child has ended.
    pub(crate) fn keep(&mut self, placeholders: Placeholders) {
        self.placeholders = placeholders;
    }

    /// Returns the child's input.
    pub(crate) const fn input(&self) -> &ChildInput {
        &self.input
    }

    /// Sends SIGINT to the group.
    pub(crate) fn interrupt(&self) {
        self.kill_on_drop.group.signal(Signal::INT);
    }

    /// Stops the child. Its input is closed so that it can end by itself. The child receives SIGTERM after half of the
    /// grace period and SIGKILL at the end of the period. Callers should drop the output first: nothing reads it during
    /// the stop, and a full pipe would prevent the child from ending. The rest of the group is killed in any case.
    pub(crate) async fn stop(self, order: StopOrder) -> Stopped {
        let Self {
            kill_on_drop,
            input,
            mut exit,
            placeholders: _placeholders,
        } = self;
        drop(input);
        let half = order.grace / 2;
        for signal in [None, Some(Signal::TERM)] {
            if let Some(signal) = signal {
                kill_on_drop.group.signal(signal);
            }
            tokio::select! {
                biased;
                exit = wait_for_exit(&mut exit) => return Stopped { detail: exit.status, killed: false },
                () = order.kill.cancelled() => break,
                () = tokio::time::sleep(half) => {}
            }
        }
        drop(kill_on_drop);
        wait_for_exit(&mut exit).await;
        Stopped {
            detail: "killed after its grace".to_owned(),
            killed: true,
        }
    }
}

/// Waits until the child has exited.
async fn wait_for_exit(exit: &mut watch::Receiver<Option<Exit>>) -> Exit {
    let seen = match exit.wait_for(Option::is_some).await {
        Ok(exit) => exit.clone(),
        Err(_) => None,
    };
    // The watcher disappears only with the runtime, which kills the child as well.
    seen.unwrap_or_else(|| Exit {
        status: "exit status unknown".to_owned(),
        stderr: String::new(),
    })
}

/// Owns the process until it is reaped.
struct Watcher {
    child: process::Child,
    group: Group,
    reader: JoinHandle<()>,
    stderr_reader: JoinHandle<()>,
    tail: Arc<Mutex<Vec<u8>>>,
    dropped: CancellationToken,
}

impl Watcher {
    async fn watch(mut self) -> Exit {
        let mut output_open = true;
        let status = tokio::select! {
            status = self.child.wait() => status,
            () = self.dropped.cancelled() => self.kill().await,
            _ = &mut self.reader => {
                output_open = false;
                // A child without output is not useful any more, but it may have to finish its work.
                tokio::select! {
                    status = self.child.wait() => status,
                    () = self.dropped.cancelled() => self.kill().await,
                    () = tokio::time::sleep(OUTPUT_TIMEOUT) => self.kill().await,
                }
            }
        };
        self.group.leader_reaped();
        // The pipes close when the group has ended, unless a process left the group and holds them.
        if output_open && timeout(OUTPUT_TIMEOUT, &mut self.reader).await.is_err() {
            self.reader.abort();
        }
        if timeout(OUTPUT_TIMEOUT, &mut self.stderr_reader).await.is_err() {
            self.stderr_reader.abort();
        }
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        Exit {
            status: describe(&status),
            stderr: String::from_utf8_lossy(&tail).into_owned(),
        }
    }

    async fn kill(&mut self) -> io::Result<ExitStatus> {
        self.group.signal(Signal::KILL);
        self.child.wait().await
    }
}

// When the runtime ends, the watcher's task is dropped unfinished. Tokio then kills the leader of the group, and this
// `drop` kills the rest of the group.
impl Drop for Watcher {
    fn drop(&mut self) {
        self.group.signal(Signal::KILL);
    }
}

async fn write_lines(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>) {
    while let Some(line) = lines.recv().await {
        // A program that closed its input has ended or will not read any more. Its end is detected elsewhere.
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_lines(stdout: ChildStdout, longest: usize, line_sender: mpsc::Sender<Line>) {
    let mut lines = BoundedLines::new(BufReader::new(stdout), longest);
    while let Ok(Some(line)) = lines.next().await {
        // There is no receiver while the program is being stopped. Its output is still read, so that the pipe does not
        // fill up.
        let _ = line_sender.send(line).await;
    }
}

async fn keep_tail(mut stderr: ChildStderr, tail: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&buffer[..length]);
        let surplus = tail.len().saturating_sub(STDERR_TAIL_BYTES);
        tail.drain(..surplus);
    }
}
