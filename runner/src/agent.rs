//! The interface between the runner and every kind of agent program. A kind translates between the runner and a
//! program's protocol. It makes no decisions about threads.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use troupe_proto::{
    common::v1::{ResolvedSpawn, ToolPolicy},
    supervisor::v1::{Input, PlanStep, RunnerKind, StartRefusal, ToolDescription, ToolUse, plan_step::State},
};

use crate::{
    outbox::Attempt,
    prompt::PreparedTurn,
    redact,
    text::{clean, cut, one_line},
    tool_line::ToolCall,
    tools::{ToolAnswer, ToolFailure},
    usage::Tokens,
};

/// Maximum length of a file name and of a media type, in characters.
const MAX_FILE_NAME_CHARS: usize = 200;
/// Maximum length of a failure text, in bytes. Programs do not bound this text.
const MAX_FAILURE_BYTES: usize = 16 * 1024;

/// Maximum length of a result in an event, in bytes.
const MAX_RESULT_BYTES: usize = 16 * 1024;

/// A kind of agent program. It starts the programs of this kind.
#[tonic::async_trait]
pub(crate) trait AgentKind: Send + Sync {
    /// Returns the name of the kind and the restrictions that its programs can enforce.
    fn describe(&self) -> RunnerKind;

    /// Returns whether programs of this kind need descriptions of the supervisor's tools.
    fn offers_tools(&self) -> bool {
        true
    }

    /// Returns whether programs of this kind write whole lines and do not report where a message ends.
    fn writes_lines(&self) -> bool {
        false
    }

    /// Starts a program for a thread. If `model` is `None`, the program uses its default model. The program runs until
    /// it is stopped or ends by itself. Dropping the agent kills the program.
    async fn start(&self, launch: &LaunchSpec, model: Option<&str>) -> Result<Box<dyn Agent>, StartFailure>;
}

/// A program that executes one thread. It processes orders one after another and never blocks the runner.
#[tonic::async_trait]
pub(crate) trait Agent: Send {
    /// Sends an order to the program.
    fn give(&mut self, order: Order) -> Result<(), InputError>;

    /// Interrupts the program with a signal, because it did not react to [`Order::Interrupt`].
    fn signal(&mut self);

    /// Returns the program's next event. Cancel safe. Must not be called after `Exited`.
    async fn next_event(&mut self) -> AgentEvent;

    /// Stops the program and everything that it started.
    async fn stop(self: Box<Self>, order: StopOrder) -> Stopped;
}

/// An order of a thread to its program.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Begin a turn.
    Turn(PreparedTurn),
    /// Accept more input within the turn. The program confirms the input with [`AgentEvent::InputTaken`].
    Input { number: u32, input: Input },
    /// Receive the answer to a tool call.
    ToolAnswered { id: String, answer: ToolAnswer },
    /// Receive the decision on a permission request ([`AgentEvent::ToolAsked`]).
    Permitted {
        id: String,
        verdict: Result<(), ToolFailure>,
    },
    /// Tell the model, within the turn, why the program refused a call ([`AgentEvent::UnofferedCall`]).
    Explain(String),
    /// End the turn.
    Interrupt,
}

/// The parameters for starting a program.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct LaunchSpec {
    pub(crate) attempt: Attempt,
    pub(crate) session_id: String,
    pub(crate) depth: u32,
    pub(crate) resolved: ResolvedSpawn,
    pub(crate) tool_policy: ToolPolicy,
    /// The agent's fixed instructions: the system part and the role part of its prompt.
    pub(crate) instructions: String,
    /// The thread's own token, for programs that can receive the supervisor's tools only from an MCP server. `None`:
    /// the thread has no token.
    pub(crate) token: Option<Secret>,
    /// The URL at which that MCP server calls the supervisor.
    pub(crate) supervisor_url: String,
    /// The file with the certificate authorities that the MCP server trusts instead of the public ones.
    pub(crate) supervisor_authorities: Option<PathBuf>,
    /// The supervisor's tools that the thread is offered. Programs that already know these tools do not receive the
    /// descriptions.
    pub(crate) offered: Vec<ToolDescription>,
    /// The agent's working directory. `None`: its scratch directory.
    pub(crate) working_directory: Option<PathBuf>,
    /// The docs directory, if it is the only directory in which the program may write (PLANNING mode). `None`: the
    /// sandbox alone decides where the program may write.
    pub(crate) docs_directory: Option<PathBuf>,
    /// The attempt's own directory for temporary files. It exists.
    pub(crate) scratch: PathBuf,
    /// A directory of the thread for files that later attempts of its program need. It may not exist yet.
    pub(crate) state: PathBuf,
    /// Whether the thread had earlier turns. If so, the new program continues their conversation.
    pub(crate) had_turns: bool,
    /// Directories and files that are hidden from the agent, except for the agent's own paths in them.
    pub(crate) hidden: Vec<PathBuf>,
    /// Whether the paths in `hidden` are hidden even from programs without restrictions.
    pub(crate) has_secrets: bool,
}

impl LaunchSpec {
    /// Returns the launch parameters of a thread in a test.
    #[cfg(test)]
    pub(crate) fn of_test(resolved: ResolvedSpawn) -> Self {
        Self {
            attempt: Attempt::new("t1", 2),
            session_id: "s1".to_owned(),
            depth: 1,
            resolved,
            scratch: "/nowhere".into(),
            state: "/nowhere".into(),
            ..Self::default()
        }
    }

    /// Returns the directory in which the agent and its tools work.
    pub(crate) fn directory(&self) -> &Path {
        self.working_directory.as_deref().unwrap_or(&self.scratch)
    }

    /// Returns the endpoint that the role sets for its model. The endpoint replaces the provider's own address. `None`:
    /// the provider's address applies. This is also the case if the operator replaced the role's model with the
    /// program's default: that model belongs to another provider, whose credentials must not be sent to this endpoint.
    pub(crate) fn endpoint(&self, model: Option<&str>) -> Option<&str> {
        let is_replaced = model.is_none() && !self.resolved.model.is_empty();
        Some(self.resolved.endpoint.as_str()).filter(|endpoint| !endpoint.is_empty() && !is_replaced)
    }

    /// Returns the gap to report for an endpoint that the program does not use. `None`: the program uses the endpoint,
    /// or the role has none.
    pub(crate) fn gap_of_endpoint(&self, is_used: bool) -> Option<String> {
        let is_ignored = !is_used && !self.resolved.endpoint.is_empty();
        is_ignored.then(|| "model requests do not go to the role's endpoint".to_owned())
    }

    /// Checks that the working directory exists.
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

/// A text that is not printed in debug output.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text. To be called only where the text is passed on.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(<redacted>)")
    }
}

/// The reason why no program could be started for a thread.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct StartFailure {
    pub(crate) refusal: StartRefusal,
    pub(crate) message: String,
}

impl StartFailure {
    /// Returns the failure of a thread for which no program fits, or whose program does not start.
    pub(crate) fn no_program(message: impl Into<String>) -> Self {
        Self {
            refusal: StartRefusal::NoProgram,
            message: cut(clean(&message.into()), MAX_FAILURE_BYTES),
        }
    }

    /// Returns the failure of a thread whose restrictions the program cannot enforce.
    pub(crate) fn not_enforceable(message: impl Into<String>) -> Self {
        Self {
            refusal: StartRefusal::PolicyNotEnforceable,
            message: cut(clean(&message.into()), MAX_FAILURE_BYTES),
        }
    }
}

/// The program did not accept an order: it has ended, or its queue is full.
#[derive(Debug, thiserror::Error)]
#[error("the program does not accept input: it has ended, or its queue is full")]
pub(crate) struct InputError;

/// How to stop a program.
#[derive(Clone, Debug)]
pub(crate) struct StopOrder {
    /// Time that the program has before it is killed.
    pub(crate) grace: Duration,
    /// Ends the grace period early.
    pub(crate) kill: CancellationToken,
}

impl StopOrder {
    /// Returns an order without a grace period.
    pub(crate) fn at_once() -> Self {
        Self {
            grace: Duration::ZERO,
            kill: CancellationToken::new(),
        }
    }
}

/// How a stopped program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// Display text, such as `exit status 0` or `killed after its grace`.
    pub(crate) detail: String,
    /// Whether the program had to be killed.
    pub(crate) killed: bool,
}

/// An event of a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AgentEvent {
    /// The program's current activity, in one line.
    Activity(String),
    /// The program used one of its own tools.
    ToolUsed(ToolUse),
    /// The program's complete plan.
    Plan(Vec<PlanStep>),
    /// The usage since the program's start.
    Spent {
        /// The tokens since the program's start.
        tokens: Tokens,
        /// The unused part of the model's context. `None`: unknown.
        context_left_percent: Option<u32>,
    },
    /// Text for display: a message, or a piece of one.
    Output(String),
    /// The message is complete. The next output belongs to another message.
    MessageEnd,
    /// A file that belongs to the turn's result.
    File(ProducedFile),
    /// A piece of a summary of the model's reasoning.
    Reasoning(String),
    /// A tool call has begun. Ignored if the program asked for permission before this call.
    ToolStarted(StartedTool),
    /// A tool call has ended.
    ToolEnded {
        /// The id of the call.
        id: String,
        failed: bool,
        /// The beginning of the result.
        text: String,
        /// The size of the result in bytes.
        size: usize,
    },
    /// The program calls a tool that the runner executes.
    ToolCalled(ToolCall),
    /// The program requests permission to execute one of its own tools, and waits.
    ToolAsked(AskedTool),
    /// The program's model called a tool that it was not offered, and the program refused the call.
    UnofferedCall {
        /// The name of one of the supervisor's tools, or the program's own name of the tool.
        tool: String,
        arguments: Value,
    },
    /// The program has lost the earlier conversation. The text gives the reason.
    ContextLost(String),
    /// The program cannot enforce a part of its policy.
    PolicyGap(String),
    /// The running turn has accepted this input. Input that is not accepted by the end of a turn is sent again with the
    /// next turn.
    InputTaken(u32),
    /// The program's turn has ended.
    TurnEnded {
        /// How the turn ended.
        ending: TurnEnding,
        /// The last message, or the error.
        message: String,
    },
    /// The program exited without a request to stop. The text describes the exit and contains the end of the program's
    /// error output.
    Exited(String),
}

impl AgentEvent {
    /// Returns the event for the end of a call with this result.
    pub(crate) fn tool_ended(id: &str, failed: bool, result: &str) -> Self {
        Self::ToolEnded {
            id: id.to_owned(),
            failed,
            text: result[..result.floor_char_boundary(MAX_RESULT_BYTES)].to_owned(),
            size: result.len(),
        }
    }

    /// Returns the event for a plan in a program's JSON: a list of steps, each with its text under `key` and its status
    /// under `status`.
    pub(crate) fn plan(steps: &Value, key: &str) -> Self {
        let state = |step: &Value| match step["status"].as_str() {
            Some("completed") => State::Completed,
            Some("inProgress" | "in_progress") => State::InProgress,
            _ => State::Pending,
        };
        let steps = steps.as_array().into_iter().flatten();
        let steps = steps.map(|step| (step[key].as_str().unwrap_or_default(), state(step)));
        Self::Plan(redact::plan(steps))
    }

    /// Returns whether the event shows that the program's requests to its model made progress.
    pub(crate) const fn is_progress(&self) -> bool {
        match self {
            Self::Output(text) => !text.is_empty(),
            Self::ToolUsed(_)
            | Self::Reasoning(_)
            | Self::File(_)
            | Self::ToolStarted(_)
            | Self::ToolEnded { .. }
            | Self::Plan(_)
            | Self::ToolCalled(_)
            | Self::ToolAsked(_)
            | Self::UnofferedCall { .. }
            | Self::InputTaken(_)
            | Self::TurnEnded { .. } => true,
            Self::Activity(_)
            | Self::MessageEnd
            | Self::Spent { .. }
            | Self::PolicyGap(_)
            | Self::ContextLost(_)
            | Self::Exited(_) => false,
        }
    }
}

/// A file of a result. It becomes an artifact of the turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProducedFile {
    pub(crate) name: String,
    pub(crate) media_type: String,
    pub(crate) kind: FileKind,
    pub(crate) data: Vec<u8>,
}

impl ProducedFile {
    /// Returns a file with the name and the media type from the program. Both are reduced to one line.
    pub(crate) fn new(kind: FileKind, name: &str, media_type: &str, data: Vec<u8>) -> Self {
        let or = |text: &str, default: &str| match one_line(text, MAX_FILE_NAME_CHARS) {
            line if line.is_empty() => default.to_owned(),
            line => line,
        };
        Self {
            name: or(name, "file"),
            media_type: or(media_type, "application/octet-stream"),
            kind,
            data,
        }
    }
}

/// What the data of a file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// The content of the file.
    File,
    /// The URL of the content.
    Link,
    /// The diff of the turn's changes in the working directory.
    Diff,
}

impl FileKind {
    /// Returns the kind of the artifact.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Link => "link",
            Self::Diff => "diff",
        }
    }
}

/// A call that a program executes without a permission request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StartedTool {
    /// The program's id of the call.
    pub(crate) id: String,
    /// The program's name of the tool.
    pub(crate) tool: String,
    pub(crate) arguments: Value,
}

/// A call of a program's own tool that needs permission.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AskedTool {
    /// The id of the permission request. [`Order::Permitted`] repeats it.
    pub(crate) id: String,
    /// The program's id of the call. Empty: unknown.
    pub(crate) call_id: String,
    /// The program's name of the tool.
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    /// The absolute paths that the call would write. Empty: unknown.
    pub(crate) written: Vec<String>,
}

/// How a program reports that its turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TurnEnding {
    Completed,
    Errored,
    Interrupted,
}
