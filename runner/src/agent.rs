//! What the runner asks of every kind of agent program. A kind translates; it decides nothing about threads.

use std::{
    fmt,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    time::Duration,
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use troupe_proto::{
    common::v1::{ResolvedSpawn, ToolPolicy},
    supervisor::v1::{Input, PlanStep, RunnerKind, StartRefusal, ToolDescription, ToolUse},
};

use crate::{
    outbox::Attempt,
    programs::ModelChoice,
    prompt::GivenTurn,
    text::{clean, cut},
    tool_line::ToolCall,
    tools::{ToolAnswer, ToolFailure},
    usage::Tokens,
};

/// The longest text of a failure, in bytes: what a program says of it may have any length.
const MAX_FAILURE_BYTES: usize = 16 * 1024;

/// A future that a trait object answers.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A kind of agent program: how to start one.
pub(crate) trait AgentKind: Send + Sync {
    /// Its name and what it can be held to.
    fn describe(&self) -> RunnerKind;

    /// Whether its programs have to be told of the supervisor's tools.
    fn offers_tools(&self) -> bool;

    /// Whether a later attempt goes on with the conversation of an earlier one.
    fn remembers(&self) -> bool;

    /// Starts a program for a thread. It runs until it is stopped, ends by itself or is dropped, which kills it.
    fn start<'a>(&'a self, casting: &'a Casting, model: ModelChoice)
    -> Boxed<'a, Result<Box<dyn Agent>, StartFailure>>;
}

/// A program that executes one thread. What it is given it takes in order and without making the runner wait.
pub(crate) trait Agent: Send {
    /// Begins a turn.
    fn give_turn(&mut self, turn: &GivenTurn) -> Result<(), Deaf>;

    /// Offers the running turn more input; [`AgentEvent::InputTaken`] says that it was taken.
    fn give_input(&mut self, number: u32, input: &Input) -> Result<(), Deaf>;

    /// Answers a tool call.
    fn answer_tool(&mut self, call_id: &str, answer: &ToolAnswer) -> Result<(), Deaf>;

    /// Tells the model, within the running turn, why a call was refused that the program answered itself.
    fn explain(&mut self, text: &str) -> Result<(), Deaf> {
        let _ = text;
        Ok(())
    }

    /// Answers [`AgentEvent::ToolAsked`].
    fn permit(&mut self, ask_id: &str, verdict: &Result<(), ToolFailure>) -> Result<(), Deaf>;

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
    /// What the agent is told once and for all: the system's and the role's part of its prompt.
    pub(crate) instructions: String,
    /// The thread's own token, for programs that can only be given the supervisor's tools by a server of their own; `None`:
    /// the thread has none.
    pub(crate) token: Option<Secret>,
    /// Where such a server reaches the supervisor, as a URL.
    pub(crate) supervisor_url: String,
    /// The authorities that such a server believes, instead of the public ones.
    pub(crate) supervisor_authorities: Option<PathBuf>,
    /// The supervisor's tools that the thread is offered. Programs that know them by themselves are not told.
    pub(crate) offered: Vec<ToolDescription>,
    /// Where the agent works; `None`: in its scratch directory.
    pub(crate) working_directory: Option<PathBuf>,
    /// A directory of the attempt's own; it exists.
    pub(crate) scratch: PathBuf,
    /// A directory of the thread's own for what its program must find again; it may have to be made.
    pub(crate) state: PathBuf,
    /// Whether a program had turns of the thread before, whose conversation the next one is to continue.
    pub(crate) had_turns: bool,
    /// Directories that no agent is to look into, but for what is its own.
    pub(crate) hidden: Vec<PathBuf>,
    /// Whether some of these are secrets of the runner's owner.
    pub(crate) has_secrets: bool,
}

impl Casting {
    /// Where the agent and its tools work.
    pub(crate) fn directory(&self) -> &Path {
        self.working_directory.as_deref().unwrap_or(&self.scratch)
    }

    /// Where the role has its model asked, in the place of the provider's own address; `None`: there. It is also none
    /// where the operator has put the program's default in the place of the role's model: that is another provider's,
    /// with credentials that are nothing for this one.
    pub(crate) fn endpoint(&self, model: &ModelChoice) -> Option<&str> {
        let is_replaced = *model == ModelChoice::Default && !self.resolved.model.is_empty();
        Some(self.resolved.endpoint.as_str()).filter(|endpoint| !endpoint.is_empty() && !is_replaced)
    }

    /// What to say of an endpoint that the program does not use; `None`: it does, or the role names none.
    pub(crate) fn gap_of_endpoint(&self, is_used: bool) -> Option<String> {
        let is_ignored = !is_used && !self.resolved.endpoint.is_empty();
        is_ignored.then(|| "its model is not asked at the endpoint that its role names".to_owned())
    }

    /// Whether there is a directory to work in.
    pub(crate) async fn check_directory(&self) -> Result<(), StartFailure> {
        let directory = self.directory();
        let shown = directory.display();
        match tokio::fs::metadata(directory).await {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(StartFailure::no_program(format!("{shown} is not a directory"))),
            Err(error) => Err(StartFailure::no_program(format!("cannot work in {shown}: {error}"))),
        }
    }
}

/// A text that is not printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the one place that hands it over.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(<redacted>)")
    }
}

/// Why no program could be started for a thread.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct StartFailure {
    pub(crate) refusal: StartRefusal,
    pub(crate) message: String,
}

impl StartFailure {
    /// No program of the runner's fits, or it does not start.
    pub(crate) fn no_program(message: impl Into<String>) -> Self {
        Self {
            refusal: StartRefusal::NoProgram,
            message: cut(clean(&message.into()), MAX_FAILURE_BYTES),
        }
    }

    /// The program cannot be held to what the thread may do.
    pub(crate) fn not_enforceable(message: impl Into<String>) -> Self {
        Self {
            refusal: StartRefusal::PolicyNotEnforceable,
            message: cut(clean(&message.into()), MAX_FAILURE_BYTES),
        }
    }
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
    /// It wants to execute a tool of its own, and waits for leave.
    ToolAsked(AskedTool),
    /// Its model called a tool that it was not offered, and the program refused the call.
    UnofferedCall {
        /// The canonical name of a tool of ours, or the program's own name.
        tool: String,
        arguments: Value,
    },
    /// It has lost the conversation that it had before; the text says why.
    ContextLost(String),
    /// It cannot be held to a part of its policy.
    PolicyGap(String),
    /// Its running turn has this input now. What is not taken by the end of a turn is given again with the next.
    InputTaken(u32),
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

impl AgentEvent {
    /// Whether the program's requests to its model led to something.
    pub(crate) const fn is_progress(&self) -> bool {
        match self {
            Self::Output(text) => !text.is_empty(),
            Self::ToolUsed(_)
            | Self::Plan(_)
            | Self::ToolCalled(_)
            | Self::ToolAsked(_)
            | Self::UnofferedCall { .. }
            | Self::InputTaken(_)
            | Self::TurnEnded { .. } => true,
            Self::Activity(_) | Self::Spent { .. } | Self::PolicyGap(_) | Self::ContextLost(_) | Self::Exited(_) => {
                false
            }
        }
    }
}

/// A tool of its own that a program wants to execute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AskedTool {
    /// The id of the question, of the kind's making.
    pub(crate) id: String,
    /// The tool's name as the program has it.
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    /// What it would write, absolute; empty: not known.
    pub(crate) written: Vec<String>,
}

/// How a program says that its turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    Errored,
    Interrupted,
}
