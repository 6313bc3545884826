//! One thread: a task that owns its program. It takes commands from the stage and tells it what became of them; it
//! never waits for the supervisor, so a thread goes on while the runner is cut off.

mod gate;
mod task;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::error;
use troupe_proto::supervisor::v1::{
    ClosePolicy, RunningInput, Telemetry, ThreadStoppedReport, Turn, runner_report::Kind,
};

use self::task::ThreadTask;
use crate::{
    agent::{Casting, StartFailure},
    config::Timing,
    kinds::Role,
    outbox::Attempt,
    questions::Question,
    tools::Toolbox,
    worktree::WorktreeCleanup,
};

/// How many commands wait for a thread, which takes them at once, and within it while a program is started.
const COMMANDS: usize = 64;
/// Why a turn was interrupted that was still running when its runner had to end.
pub(crate) const RUNNER_STOPPED: &str = "the service was stopped";

/// What a thread is to do. The stage has checked that it is meant for this attempt.
#[derive(Debug)]
pub(crate) enum Command {
    /// The next turn.
    Turn(Turn),
    /// Input for the running turn.
    Input(RunningInput),
    /// Stop this turn, if it is the running one.
    Interrupt {
        /// The turn.
        turn: u32,
    },
    /// Stop the program and say so.
    Shutdown(Shutdown),
    /// The runner is being stopped: interrupt the running turn, then stop the program.
    RunnerStops(Shutdown),
}

/// How a thread's program is stopped by the supervisor.
#[derive(Debug)]
pub(crate) struct Shutdown {
    pub(crate) policy: ClosePolicy,
    pub(crate) grace: Duration,
    pub(crate) reason: String,
    /// Whether the thread stays open, and what it has on disk with it.
    pub(crate) thread_goes_on: bool,
}

/// What a thread tells the stage.
#[derive(Debug)]
pub(crate) enum News {
    /// A change of state.
    Report(Kind),
    /// May it use a tool?
    Question(Question),
    /// The latest values.
    Telemetry(Telemetry),
    /// Output for people.
    Output(String),
    /// It could not start; nothing follows but `Gone`.
    Refused(StartFailure),
    /// Its program is gone and its task ends. The last word of every thread.
    Gone,
}

/// What a thread is started with.
pub(crate) struct ThreadStart {
    pub(crate) casting: Casting,
    pub(crate) first_turn: Option<Turn>,
    /// Its program.
    pub(crate) role: Role,
    /// That it works in a worktree of its own, and when that is removed.
    pub(crate) worktree: Option<WorktreeCleanup>,
    pub(crate) toolbox: Toolbox,
    pub(crate) timing: Timing,
    pub(crate) news: mpsc::Sender<(Attempt, News)>,
    /// Fires when the thread's earlier attempt is gone: two of them never work in one directory.
    pub(crate) predecessor: Option<CancellationToken>,
}

/// The stage's end of a thread. Dropping it abandons the thread.
#[derive(Debug)]
pub(crate) struct ThreadHandle {
    commands: mpsc::Sender<Command>,
    abandoned: CancellationToken,
    gone: CancellationToken,
}

impl ThreadHandle {
    /// Hands a command over; false: the thread has too many already, or is gone.
    pub(crate) fn command(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Stops the program without a word: nobody wants its reports any more. Answers what fires when it is gone.
    pub(crate) fn abandon(self) -> CancellationToken {
        self.abandoned.cancel();
        self.gone
    }
}

/// The thread's way to the stage.
#[derive(Clone, Debug)]
struct Voice {
    attempt: Attempt,
    news: mpsc::Sender<(Attempt, News)>,
}

impl Voice {
    async fn tell(&self, news: News) {
        // The stage outlives its threads; if it does not, nobody is left to hear.
        let _ = self.news.send((self.attempt.clone(), news)).await;
    }

    async fn report(&self, kind: Kind) {
        self.tell(News::Report(kind)).await;
    }
}

/// Starts a thread's task.
pub(crate) fn spawn(start: ThreadStart) -> ThreadHandle {
    let (commands, to_do) = mpsc::channel(COMMANDS);
    let (abandoned, gone) = (CancellationToken::new(), CancellationToken::new());
    let voice = Voice {
        attempt: start.casting.attempt.clone(),
        news: start.news.clone(),
    };
    let handle = ThreadHandle {
        commands,
        abandoned: abandoned.clone(),
        gone: gone.clone(),
    };
    let thread = tokio::spawn(ThreadTask::new(start, voice.clone(), to_do, abandoned).run());
    tokio::spawn(async move {
        if let Err(defect) = thread.await {
            error!(thread_id = voice.attempt.thread_id, %defect, "a thread's task failed");
            let stopped = ThreadStoppedReport {
                detail: "the runner failed to keep the program".to_owned(),
                killed: true,
            };
            voice.report(Kind::Stopped(stopped)).await;
        }
        gone.cancel();
        voice.tell(News::Gone).await;
    });
    handle
}
