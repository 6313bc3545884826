//! One thread: a task that owns its program. It receives commands from the runner state and reports the results. It
//! never waits for the supervisor, so a thread continues while the runner is disconnected.

mod gate;
mod task;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::error;
use troupe_proto::supervisor::v1::{
    ClosePolicy, RunningInput, Telemetry, ThreadStoppedReport, TranscriptEntry, Turn, runner_report::Kind,
};

use self::task::ThreadTask;
use crate::{
    agent::{LaunchSpec, StartFailure},
    config::Timing,
    kinds::Role,
    outbox::Attempt,
    questions::Question,
    tools::Toolbox,
    worktree::WorktreeCleanup,
};

/// Maximum number of commands in a thread's queue, and of further commands that wait while a program starts.
const COMMANDS: usize = 64;
/// The reason of an interruption because the runner stops.
pub(crate) const RUNNER_STOPPED: &str = "the service was stopped";

/// A command for a thread. The runner state has checked that it is for the current attempt.
#[derive(Debug)]
pub(crate) enum Command {
    /// The next turn.
    Turn(Turn),
    /// Input for the running turn.
    Input(RunningInput),
    /// Interrupt this turn, if it is running.
    Interrupt {
        /// The turn.
        turn: u32,
    },
    /// Stop the program and report the stop.
    Shutdown(Shutdown),
    /// The runner is being stopped: interrupt the running turn, then stop the program.
    RunnerStops(Shutdown),
}

/// The supervisor's order to stop a thread's program.
#[derive(Debug)]
pub(crate) struct Shutdown {
    pub(crate) policy: ClosePolicy,
    pub(crate) grace: Duration,
    pub(crate) reason: String,
    /// Whether the thread stays open and keeps its files.
    pub(crate) thread_goes_on: bool,
}

/// An event of a thread for the runner state.
#[derive(Debug)]
pub(crate) enum ThreadEvent {
    /// A change of state.
    Report(Kind),
    /// The question whether a tool may run.
    Question(Question),
    /// The latest telemetry values.
    Telemetry(Telemetry),
    /// Output for display.
    Output(String),
    /// Entries of the thread's transcript.
    Transcript(Vec<TranscriptEntry>),
    /// The start failed. Only `Gone` follows.
    Refused(StartFailure),
    /// The program is gone and the task ends. The last event of every thread.
    Gone,
}

/// The start parameters of a thread.
pub(crate) struct ThreadStart {
    pub(crate) launch: LaunchSpec,
    pub(crate) first_turn: Option<Turn>,
    /// The thread's program and model.
    pub(crate) role: Role,
    /// When the thread's own worktree is removed. `None`: the thread works in its given directory.
    pub(crate) worktree: Option<WorktreeCleanup>,
    pub(crate) toolbox: Toolbox,
    pub(crate) timing: Timing,
    pub(crate) events: mpsc::Sender<(Attempt, ThreadEvent)>,
    /// Fires when the program of the thread's earlier attempt has ended. Two attempts never work in one directory at
    /// once.
    pub(crate) predecessor: Option<CancellationToken>,
}

/// The runner state's end of a thread. Dropping it abandons the thread.
#[derive(Debug)]
pub(crate) struct ThreadHandle {
    commands: mpsc::Sender<Command>,
    abandoned: CancellationToken,
    gone: CancellationToken,
}

impl ThreadHandle {
    /// Sends a command. Returns `false` if the thread's queue is full or the thread is gone.
    pub(crate) fn command(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Stops the program without reports. Returns a token that fires when the program has ended.
    pub(crate) fn abandon(self) -> CancellationToken {
        self.abandoned.cancel();
        self.gone
    }
}

/// A thread's channel to the runner state.
#[derive(Clone, Debug)]
struct ThreadReporter {
    attempt: Attempt,
    events: mpsc::Sender<(Attempt, ThreadEvent)>,
}

impl ThreadReporter {
    async fn report_event(&self, event: ThreadEvent) {
        // The runner state normally outlives its threads. Without it there is no receiver, and the event is dropped.
        let _ = self.events.send((self.attempt.clone(), event)).await;
    }

    async fn report(&self, kind: Kind) {
        self.report_event(ThreadEvent::Report(kind)).await;
    }
}

/// Starts a thread's task.
pub(crate) fn spawn(start: ThreadStart) -> ThreadHandle {
    let (commands, to_do) = mpsc::channel(COMMANDS);
    let (abandoned, gone) = (CancellationToken::new(), CancellationToken::new());
    let reporter = ThreadReporter {
        attempt: start.launch.attempt.clone(),
        events: start.events.clone(),
    };
    let handle = ThreadHandle {
        commands,
        abandoned: abandoned.clone(),
        gone: gone.clone(),
    };
    let thread = tokio::spawn(ThreadTask::new(start, reporter.clone(), to_do, abandoned).run());
    tokio::spawn(async move {
        if let Err(defect) = thread.await {
            error!(thread_id = reporter.attempt.thread_id, %defect, "a thread's task failed");
            let stopped = ThreadStoppedReport {
                detail: "the runner stopped the program because of an internal error".to_owned(),
                killed: true,
            };
            reporter.report(Kind::Stopped(stopped)).await;
        }
        gone.cancel();
        reporter.report_event(ThreadEvent::Gone).await;
    });
    handle
}
