//! What the runner asks of every kind of agent program. A kind translates; it decides nothing about threads.

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use troupe_proto::{
    common::v1::{ResolvedSpawn, ToolPolicy},
    supervisor::v1::{Input, PlanStep, RunnerKind, StartRefusal, ToolUse},
};

use crate::{outbox::Attempt, prompt::GivenTurn, tool_line::ToolCall, tools::ToolAnswer, usage::Tokens};

/// A future that a trait object answers.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A kind of agent program: how to start one.
pub(crate) trait AgentKind: Send + Sync {
    /// Its name and what it can be held to.
    fn describe(&self) -> RunnerKind;

    /// Starts a program for a thread. It runs until it is stopped, ends by itself or is dropped, which kills it.
    fn start<'a>(&'a self, casting: &'a Casting) -> Boxed<'a, Result<Box<dyn Agent>, StartFailure>>;
}

/// A program that executes one thread. What it is given it takes in order and without making the runner wait.
pub(crate) trait Agent: Send {
    /// Begins a turn.
    fn give_turn(&mut self, turn: &GivenTurn) -> Result<(), Deaf>;

    /// Adds input to the running turn.
    fn give_input(&mut self, number: u32, input: &Input) -> Result<(), Deaf>;

    /// Answers a tool call.
    fn answer_tool(&mut self, call_id: &str, answer: &ToolAnswer) -> Result<(), Deaf>;

    /// Makes the program end its turn.
    fn interrupt(&mut self, nudge: Nudge);

    /// The next thing that the program does. Nothing is lost when the future is dropped. After `Exited` the agent is
    /// not used any more.
    fn next_event(&mut self) -> Boxed<'_, AgentEvent>;

    /// Ends the program and everything that it started.
    fn stop(self: Box<Self>, order: StopOrder) -> Boxed<'static, Stopped>;
}

/// Whom a program is started for.
#[derive(Clone, Debug)]
pub(crate) struct Casting {
    pub(crate) attempt: Attempt,
    pub(crate) session_id: String,
    pub(crate) depth: u32,
    pub(crate) resolved: ResolvedSpawn,
    pub(crate) tool_policy: ToolPolicy,
    /// Where the agent works; `None`: in its scratch directory.
    pub(crate) working_directory: Option<PathBuf>,
    /// A directory of the thread's own; it exists.
    pub(crate) scratch: PathBuf,
}

impl Casting {
    /// Where the agent and its tools work.
    pub(crate) fn directory(&self) -> &Path {
        self.working_directory.as_deref().unwrap_or(&self.scratch)
    }
}

/// Why no program could be started for a thread.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct StartFailure {
    pub(crate) refusal: StartRefusal,
    pub(crate) message: String,
}

/// The program has ended, or takes so long to read that what waits for it has reached its bound.
#[derive(Debug, thiserror::Error)]
#[error("the program does not read what it is given")]
pub(crate) struct Deaf;

/// How hard a program is asked to end its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nudge {
    /// By its protocol.
    Ask,
    /// By a signal.
    Signal,
}

/// How a program is to be stopped.
#[derive(Clone, Debug)]
pub(crate) struct StopOrder {
    /// How long it may take before it is killed.
    pub(crate) grace: Duration,
    /// Ends the grace early.
    pub(crate) kill: CancellationToken,
}

impl StopOrder {
    /// Without any grace.
    pub(crate) fn at_once() -> Self {
        Self {
            grace: Duration::ZERO,
            kill: CancellationToken::new(),
        }
    }
}

/// How a program ended that was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// For people: `exit status 0`, `killed after its grace`.
    pub(crate) detail: String,
    /// Whether it had to be killed.
    pub(crate) killed: bool,
}

/// What a program does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AgentEvent {
    /// What it is doing, one line.
    Activity(String),
    /// It used a tool of its own.
    ToolUsed(ToolUse),
    /// Its plan, whole.
    Plan(Vec<PlanStep>),
    /// What it spent since its start.
    Spent {
        /// Counted from its start.
        tokens: Tokens,
        /// How much of the model's context is left; `None`: unknown.
        context_left_percent: Option<u32>,
    },
    /// Text for people.
    Output(String),
    /// It wants a tool executed.
    ToolCalled(ToolCall),
    /// Its turn is over.
    TurnEnded {
        /// How.
        ending: Ending,
        /// The last message or what went wrong.
        message: String,
    },
    /// It is gone without having been asked; the text says how, with the end of what it complained about.
    Exited(String),
}

/// How a program says that its turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    Errored,
    Interrupted,
}
