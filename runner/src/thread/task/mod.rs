//! The task of one thread. It waits for one event at a time and handles it.

mod calls;
mod end_reason;
mod events;
mod inbox;
mod span;
mod transcript;
mod turns;

use std::{
    collections::BTreeMap,
    future::pending,
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::Sha256;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tool_policy::NativeTools;
use tracing::warn;
use troupe_proto::{
    common::v1::Sandbox,
    supervisor::v1::{Turn, runner_report::Kind},
};

use self::{
    calls::{Answered, CallQueue, DecidedCall, ToolExecutor},
    end_reason::remove_scratch,
    inbox::Inbox,
    span::TurnSpan,
    transcript::Transcript,
};
use super::{Command, Shutdown, ThreadEvent, ThreadReporter, ThreadStart};
use crate::{
    agent::{Agent, AgentEvent, LaunchSpec, StartFailure},
    config::Timing,
    confinement,
    env::WORKTREE,
    kinds::Role,
    meter::Meter,
    prompt::PromptMemory,
    timer::at,
    usage::UsageMeter,
    workspace::{Changes, Snapshot, Snapshots, Workspace},
    worktree::{CleanupOutcome, Worktree, WorktreeCleanup},
};

/// A thread and its program.
pub(super) struct ThreadTask {
    reporter: ThreadReporter,
    inbox: Inbox,
    role: Role,
    worktree: Option<WorktreeCleanup>,
    launch: LaunchSpec,
    executor: ToolExecutor,
    timing: Timing,
    predecessor: Option<CancellationToken>,
    first_turn: Option<Turn>,

    /// `None` between the end of one program and the turn for which the next one is started.
    agent: Option<Box<dyn Agent>>,
    /// Whether the program has received a complete prompt.
    has_prompt: bool,
    prompts: PromptMemory,
    usage: UsageMeter,
    meter: Meter,
    transcript: Transcript,
    /// Receives calls of workspace tools on which the supervisor has decided.
    decided: mpsc::Receiver<DecidedCall>,

    turn: Option<RunningTurn>,
    /// A turn that arrived while another one was running. It begins after that turn.
    next_turn: Option<Turn>,
    /// The number of the newest accepted turn. Dispatches of this turn and of earlier turns are ignored.
    last_turn: u32,
    /// The number of the newest input that reached a running turn.
    last_input: u32,
    /// Tool calls of the running turn, and permission requests of its program.
    calls: JoinSet<Answered>,
    /// The snapshots that show the changes of a turn. `None`: the thread may not write.
    snapshots: Option<Snapshots>,
    queue: CallQueue,
    minted_ids: u64,
    /// Set if the thread was ordered to end while a program was started for a turn.
    over: Option<EndReason>,
    /// Whether turns are interrupted because the runner is being stopped.
    runner_stops: bool,
}

/// Maximum number of decided calls that wait to be recorded.
const DECIDED: usize = 32;

struct RunningTurn {
    number: u32,
    since: Instant,
    span: TurnSpan,
    output: Sha256,
    /// Input that was offered to the program and not accepted yet, by number.
    offered: BTreeMap<u32, String>,
    /// The known file changes of the turn.
    changes: Changes,
    /// The snapshot of the workspace at the beginning of the turn. `None`: there is no snapshot.
    before: Option<Snapshot>,
    escalation: Option<Escalation>,
}

/// The next escalation of an interrupted turn that has not ended, and its time.
#[derive(Clone, Copy)]
struct Escalation {
    next: EscalationStep,
    at: Instant,
}

#[derive(Clone, Copy)]
enum EscalationStep {
    Signal,
    Kill,
}

/// An event that the task waits for.
enum Step {
    Command(Command),
    Abandoned,
    Event(AgentEvent),
    Answered(Result<Answered, JoinError>),
    Decided(DecidedCall),
    Transcribe,
    Escalate,
    Show,
    Overdue,
}

/// The reason why the task ends.
enum EndReason {
    Shutdown(Shutdown),
    Abandoned,
}

/// The reason why a program was not started.
enum Unstarted {
    /// The start failed.
    Failed(StartFailure),
    /// The thread was ordered to end before it had started.
    Over(EndReason),
}

impl From<StartFailure> for Unstarted {
    fn from(failure: StartFailure) -> Self {
        Self::Failed(failure)
    }
}

impl From<EndReason> for Unstarted {
    fn from(end_reason: EndReason) -> Self {
        Self::Over(end_reason)
    }
}

impl ThreadTask {
    pub(super) fn new(
        start: ThreadStart,
        reporter: ThreadReporter,
        commands: mpsc::Receiver<Command>,
        abandoned: CancellationToken,
    ) -> Self {
        let token = start.launch.token.as_ref().map(|token| token.expose().to_owned());
        let (decided, decided_calls) = mpsc::channel(DECIDED);
        let secrets: Arc<[String]> = start.role.secrets.iter().cloned().chain(token).collect();
        let kind = start.role.kind.describe().kind;
        let names = NativeTools::of_kind(&kind).unwrap_or(NativeTools::UNKNOWN);
        let transcript = Transcript::new(Arc::clone(&secrets), names, start.role.kind.writes_lines());
        let executor = ToolExecutor {
            toolbox: start.toolbox,
            workspace: Arc::new(Workspace::of(&start.launch, start.timing.command_limit)),
            reporter: reporter.clone(),
            worktree: None,
            secrets,
            decided,
        };
        Self {
            reporter,
            inbox: Inbox::new(commands, abandoned),
            role: start.role,
            worktree: start.worktree,
            launch: start.launch,
            executor,
            timing: start.timing,
            predecessor: start.predecessor,
            first_turn: start.first_turn,
            agent: None,
            has_prompt: false,
            prompts: PromptMemory::default(),
            usage: UsageMeter::default(),
            meter: Meter::new(Instant::now()),
            transcript,
            decided: decided_calls,
            turn: None,
            next_turn: None,
            last_turn: 0,
            last_input: 0,
            calls: JoinSet::new(),
            snapshots: None,
            queue: CallQueue::default(),
            minted_ids: 0,
            over: None,
            runner_stops: false,
        }
    }

    pub(super) async fn run(mut self) {
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.cancelled().await;
        }
        if self.inbox.is_abandoned() {
            return;
        }
        let end_reason = match self.open().await {
            Ok(()) => {
                if let Some(turn) = self.first_turn.take() {
                    self.accept_turn(turn).await;
                }
                self.handle_steps().await
            }
            Err(Unstarted::Over(end_reason)) => end_reason,
            Err(Unstarted::Failed(failure)) => {
                self.reporter.report_event(ThreadEvent::Refused(failure)).await;
                remove_scratch(&self.launch.scratch).await;
                return;
            }
        };
        let is_closed = matches!(&end_reason, EndReason::Shutdown(order) if !order.thread_goes_on);
        let stopped = self.stop(end_reason).await;
        // Cancels calls of a thread that was abandoned within its turn.
        self.calls.shutdown().await;
        if is_closed {
            self.close_worktree().await;
        }
        remove_scratch(&self.launch.scratch).await;
        if let Some(snapshots) = &self.snapshots {
            remove_scratch(snapshots.store()).await;
        }
        self.transcribe().await;
        // This is the last report, after all work is done, because the supervisor may start the thread's next attempt
        // when it receives the report.
        if let Some(stopped) = stopped {
            self.reporter.report(Kind::Stopped(stopped)).await;
        }
    }

    async fn open(&mut self) -> Result<(), Unstarted> {
        let scratch = &self.launch.scratch;
        tokio::fs::create_dir_all(scratch)
            .await
            .map_err(|error| StartFailure::no_program(format!("cannot create {}: {error}", scratch.display())))?;
        if self.worktree.is_some() {
            self.open_worktree().await?;
        }
        self.launch.docs_directory = self.first_turn.as_ref().and_then(|turn| self.docs_of(turn));
        self.snapshots = Snapshots::of(&self.launch);
        if self.role.kind.offers_tools() {
            // A thread must not begin with fewer tools than its permissions allow, so a failed query prevents the
            // start.
            let offered = Box::pin(self.executor.toolbox.offered());
            let offered = self.inbox.unless_over(offered).await?;
            self.launch.offered = offered.map_err(|failure| {
                StartFailure::no_program(format!("cannot list the thread's tools: {}", failure.text()))
            })?;
        }
        self.start_program().await
    }

    /// Moves the thread into its own worktree.
    async fn open_worktree(&mut self) -> Result<(), Unstarted> {
        let top = self.launch.state.join(WORKTREE);
        let opened = match tokio::fs::create_dir_all(&self.launch.state).await {
            Ok(()) => {
                let opening = Worktree::open(self.launch.directory(), top, &self.launch.hidden);
                let opening = Box::pin(opening);
                self.inbox.unless_over(opening).await?
            }
            Err(error) => Err(error.to_string()),
        };
        let worktree = opened.map_err(|why| {
            let directory = self.launch.directory().display();
            StartFailure::no_program(format!("cannot create a worktree of {directory}: {why}"))
        })?;
        if let Some(worktree) = worktree {
            self.launch.working_directory = Some(worktree.directory());
            self.executor.workspace = Arc::new(Workspace::of(&self.launch, self.timing.command_limit));
            self.executor.worktree = Some(Arc::new(worktree));
        }
        Ok(())
    }

    /// Removes the worktree as configured. If the worktree is kept, reports its path.
    async fn close_worktree(&mut self) {
        let (Some(worktree), Some(cleanup)) = (self.executor.worktree.clone(), self.worktree) else {
            return;
        };
        let top = worktree.top().display();
        let text = match worktree.close(cleanup).await {
            Ok(CleanupOutcome::Removed) => return,
            Ok(CleanupOutcome::Kept) => format!("[its work is kept in {top}]\n"),
            Err(why) => {
                warn!(%top, why, "a worktree was not removed");
                format!("[its work is kept in {top}, which could not be checked: {why}]\n")
            }
        };
        self.reporter.report_event(ThreadEvent::Output(text)).await;
    }

    /// Returns the only directory in which the program may write during a turn. `None`: the turn is not in PLANNING
    /// mode, or the program is not confined or may not write at all.
    fn docs_of(&self, turn: &Turn) -> Option<PathBuf> {
        let is_confined = self.role.kind.describe().enforces_workspace && confinement::is_known();
        let sandbox = self.launch.resolved.sandbox();
        let is_writer = matches!(sandbox, Sandbox::WorkspaceWrite | Sandbox::FullAccess);
        let docs = Path::new(&turn.docs_directory);
        let (true, true, Some(root), Some(name)) = (is_confined, is_writer, docs.parent(), docs.file_name()) else {
            return None;
        };
        // A mount on a link does not cover its target.
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let docs = root.join(name);
        Some(match &self.executor.worktree {
            Some(worktree) => worktree.in_worktree(docs),
            None => docs,
        })
    }

    async fn start_program(&mut self) -> Result<(), Unstarted> {
        let first = self.first_turn.as_ref().map_or(0, |turn| turn.turn);
        self.launch.had_turns = self.last_turn.max(first) > 1;
        let starting = self.role.kind.start(&self.launch, self.role.model.as_deref());
        self.agent = Some(self.inbox.unless_over(starting).await??);
        self.has_prompt = false;
        Ok(())
    }

    async fn handle_steps(&mut self) -> EndReason {
        loop {
            if let Some(end_reason) = self.finished() {
                return end_reason;
            }
            let step = self.next_step().await;
            if let Some(end_reason) = self.handle_step(step).await {
                return end_reason;
            }
        }
    }

    async fn next_step(&mut self) -> Step {
        let press_at = self.turn.as_ref().and_then(|turn| Some(turn.escalation?.at));
        let show_at = self.meter.due();
        let overdue_at = self.inbox.overdue_at();
        let transcribe_at = self.transcript.due();
        tokio::select! {
            command = self.inbox.next() => command.map_or(Step::Abandoned, Step::Command),
            event = next_event(&mut self.agent) => Step::Event(event),
            Some(decided) = self.decided.recv() => Step::Decided(decided),
            Some(answered) = self.calls.join_next(), if !self.calls.is_empty() => Step::Answered(answered),
            () = at(transcribe_at) => Step::Transcribe,
            () = at(press_at) => Step::Escalate,
            () = at(show_at) => Step::Show,
            () = at(overdue_at) => Step::Overdue,
        }
    }

    async fn handle_step(&mut self, step: Step) -> Option<EndReason> {
        match step {
            Step::Command(command) => return self.handle_command(command).await,
            Step::Abandoned => return Some(EndReason::Abandoned),
            Step::Event(event) => self.handle_event(event).await,
            Step::Answered(Ok(answered)) => {
                // The decision on a call is recorded before its result.
                while let Ok(call) = self.decided.try_recv() {
                    self.record_decided(&call);
                }
                self.handle_answered(answered);
            }
            Step::Answered(Err(defect)) => warn!(%defect, "a tool call failed"),
            Step::Decided(call) => self.record_decided(&call),
            Step::Transcribe => self.transcribe().await,
            Step::Escalate => self.escalate().await,
            Step::Show => self.show().await,
            Step::Overdue => {}
        }
        if self.transcript.is_full() {
            self.transcribe().await;
        }
        None
    }

    /// Returns the reason to end the thread, if it has nothing more to wait for.
    fn finished(&mut self) -> Option<EndReason> {
        let over = self.over.take();
        over.or_else(|| match &self.turn {
            Some(_) => self.inbox.overdue(),
            None => self.inbox.finished(),
        })
    }
}

async fn next_event(agent: &mut Option<Box<dyn Agent>>) -> AgentEvent {
    match agent {
        Some(agent) => agent.next_event().await,
        None => pending().await,
    }
}
