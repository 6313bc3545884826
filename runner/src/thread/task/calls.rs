//! Tool calls of the running turn: calls of the supervisor's tools, and calls that work in the thread's directory.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tool_policy::{Effect, NativeTools};
use troupe_proto::{reason::Reason, supervisor::v1::ToolVerdict};

use super::{ThreadTask, transcript::RecordedCall};
use crate::{
    agent::{AskedTool, Order, StartedTool},
    redact,
    thread::{
        ThreadReporter,
        gate::{self, JudgedCall, Judgement},
    },
    tool_line::{ToolCall, WorkspaceTool},
    tools::{ToolAnswer, ToolFailure, Toolbox, answer_text},
    workspace::{FileContent, Prepared, Workspace},
    worktree::Worktree,
};

/// Maximum number of concurrent tool calls of one thread, including its program's permission requests.
const MAX_CALLS: usize = 32;

/// The executors of a thread's calls.
#[derive(Clone, Debug)]
pub(super) struct ToolExecutor {
    pub(super) toolbox: Toolbox,
    pub(super) workspace: Arc<Workspace>,
    pub(super) reporter: ThreadReporter,
    /// The thread's worktree, if it works in one.
    pub(super) worktree: Option<Arc<Worktree>>,
    /// The program's credentials, which are redacted in every displayed call.
    pub(super) secrets: Arc<[String]>,
    /// Receives the calls of workspace tools when they are decided.
    pub(super) decided: mpsc::Sender<DecidedCall>,
}

impl ToolExecutor {
    async fn execute(self, call: ToolCall) -> Answered {
        let id = call.id.clone();
        let mut before = Vec::new();
        let answer = match WorkspaceTool::named(&call.name) {
            Some(tool) => self.run_workspace_tool(tool, call, &id, &mut before).await,
            None => self.toolbox.call(call).await,
        };
        Answered::Call { id, answer, before }
    }

    /// Returns the written paths relative to the repository, because policies refer to those.
    fn in_repository(&self, written: Vec<String>) -> Vec<String> {
        match &self.worktree {
            Some(worktree) => written.iter().map(|path| worktree.in_repository(path)).collect(),
            None => written,
        }
    }

    /// Waits for permission to run one of the program's own tools. The paths of an oversized call are not resolved,
    /// because each path needs access to the disk.
    async fn ask_permission(&self, mut call: JudgedCall<'_>) -> Judgement {
        if let Err(failure) = gate::check(call.tool, &call.written) {
            return failure.into();
        }
        call.written = self.in_repository(self.workspace.followed(call.written).await);
        self.reporter.ask(call, &self.secrets).await
    }

    /// Sends to the supervisor a call of a tool that the program was not offered. The supervisor records the denial.
    /// Returns the text for the model if the tool is one of the supervisor's tools. For its own tools the program sends
    /// that text itself.
    async fn record_denial(&self, call: JudgedCall<'_>) -> Option<String> {
        let tool = call.tool;
        let refused = self.reporter.ask(call, &self.secrets).await;
        let why = refused
            .verdict
            .err()
            .filter(|_| Effect::of(tool) == Effect::Coordinates)?;
        Some(format!("The call of `{tool}` was refused: {}", why.text()))
    }

    async fn run_workspace_tool(
        self,
        tool: WorkspaceTool,
        call: ToolCall,
        id: &str,
        before: &mut Vec<FileContent>,
    ) -> ToolAnswer {
        let (native, given) = (call.name, call.args.clone());
        let prepared = match self.prepare(tool, call.args).await {
            Ok(prepared) => prepared,
            Err(failure) => {
                self.record(id, native, Value::Object(given), failure.clone().into())
                    .await;
                return Err(failure);
            }
        };
        let arguments = prepared.arguments();
        let asked = JudgedCall {
            kind: NativeTools::PROCESS.kind(),
            tool: prepared.tool(),
            arguments: &arguments,
            written: self.in_repository(prepared.written()),
            not_offered: false,
            // The runner itself is not confined to the docs directory.
            docs_only: false,
        };
        let judgement = self.reporter.ask(asked, &self.secrets).await;
        let verdict = judgement.verdict.clone();
        self.record(id, native, arguments, judgement).await;
        verdict?;
        *before = self.workspace.read_files(prepared.written()).await;
        prepared.perform().await
    }

    async fn prepare(&self, tool: WorkspaceTool, args: Map<String, Value>) -> Result<Prepared, ToolFailure> {
        let call = tool
            .read(args)
            .map_err(|error| ToolFailure::bad_arguments(error.to_string()))?;
        self.workspace.prepare(call).await
    }

    async fn record(&self, id: &str, tool: String, arguments: Value, judgement: Judgement) {
        let decided = DecidedCall {
            id: id.to_owned(),
            tool,
            arguments,
            judgement,
        };
        // There is no receiver if the thread has ended.
        let _ = self.decided.send(decided).await;
    }
}

/// A call with its decision.
#[derive(Debug)]
pub(super) struct DecidedCall {
    /// The program's id of the call.
    id: String,
    /// The program's name of the tool.
    tool: String,
    arguments: Value,
    judgement: Judgement,
}

/// A completed call.
#[derive(Debug)]
pub(super) enum Answered {
    /// A tool call was executed.
    Call {
        /// The program's id of the call.
        id: String,
        answer: ToolAnswer,
        /// The earlier contents of the files that the call wrote.
        before: Vec<FileContent>,
    },
    /// The call of a tool that was not offered was recorded. Contains the text for the model.
    Unoffered(Option<String>),
    /// The supervisor decided on a call of one of the program's own tools.
    Ask {
        id: String,
        call: DecidedCall,
        /// The earlier contents of the files that the call may write.
        before: Vec<FileContent>,
    },
}

/// The queue of calls that must run in order. Each call waits for the end of the previous call, whatever the result of
/// that call is.
#[derive(Debug, Default)]
pub(super) struct CallQueue {
    last: Option<CancellationToken>,
}

impl CallQueue {
    /// Adds a call. Returns the token that fires at the end of the previous call, and the token that marks the end of
    /// this call.
    fn take_place(&mut self) -> (Option<CancellationToken>, CancellationToken) {
        let done = CancellationToken::new();
        (self.last.replace(done.clone()), done)
    }
}

impl ThreadTask {
    pub(super) fn call(&mut self, mut call: ToolCall) {
        if let Some(warning) = call.warning {
            self.meter.output(warning);
        }
        if call.id.is_empty() {
            self.minted_ids += 1;
            call.id = format!("call-{}", self.minted_ids);
        }
        if let Some(refusal) = self.refusal() {
            let answer = Err(refusal);
            self.give(Order::ToolAnswered { id: call.id, answer });
            return;
        }
        let used = redact::tool_use(&call.name, "");
        self.meter.show(|shown| shown.last_tool = Some(used));
        // The supervisor decides about its own tools when they are called.
        if WorkspaceTool::named(&call.name).is_none() {
            let arguments = Value::Object(call.args.clone());
            self.record_call(&RecordedCall::undecided(&call.id, &call.name, &arguments));
        }
        let mut executor = self.executor.clone();
        if let Some(turn) = &self.turn {
            executor.toolbox.trace(turn.span.context_of(&call.id));
        }
        if call.keeps_order() {
            let (before, done) = self.queue.take_place();
            // The guard is created here, so that the token also fires if the call is dropped before it begins.
            let done = done.drop_guard();
            self.calls.spawn(async move {
                let _done = done;
                if let Some(before) = before {
                    before.cancelled().await;
                }
                executor.execute(call).await
            });
        } else {
            self.calls.spawn(executor.execute(call));
        }
    }

    /// Handles a program's request for permission to use one of its own tools.
    pub(super) fn ask(&mut self, asked: AskedTool) {
        let AskedTool {
            id,
            call_id,
            tool,
            arguments,
            written,
        } = asked;
        if let Some(refusal) = self.refusal() {
            let call = DecidedCall {
                id: call_id,
                tool,
                arguments,
                judgement: refusal.into(),
            };
            let before = Vec::new();
            self.handle_answered(Answered::Ask { id, call, before });
            return;
        }
        let executor = self.executor.clone();
        let kind = self.role.kind.describe().kind;
        let docs_only = self.launch.docs_directory.is_some();
        self.calls.spawn(async move {
            let call = JudgedCall {
                kind: &kind,
                tool: &tool,
                arguments: &arguments,
                written: written.clone(),
                not_offered: false,
                docs_only,
            };
            let judgement = executor.ask_permission(call).await;
            let before = match &judgement.verdict {
                Ok(()) => executor.workspace.read_files(written).await,
                Err(_) => Vec::new(),
            };
            let call = DecidedCall {
                id: call_id,
                tool,
                arguments,
                judgement,
            };
            Answered::Ask { id, call, before }
        });
    }

    /// Reports a call of a tool that was not offered, so that the supervisor records the denial.
    pub(super) fn refuse_unoffered(&mut self, tool: String, arguments: Value) {
        // The program has already rejected the call, so only the record is missing.
        if self.refusal().is_some() {
            return;
        }
        self.record_call(&RecordedCall {
            verdict: ToolVerdict::Denied,
            reason: "the tool was not offered",
            ..RecordedCall::undecided("", &tool, &arguments)
        });
        let executor = self.executor.clone();
        let kind = self.role.kind.describe().kind;
        let docs_only = self.launch.docs_directory.is_some();
        // A separate task, so that the denial is recorded even if the turn ends first.
        let recorded = tokio::spawn(async move {
            let call = JudgedCall {
                kind: &kind,
                tool: &tool,
                arguments: &arguments,
                written: Vec::new(),
                not_offered: true,
                docs_only,
            };
            executor.record_denial(call).await
        });
        self.calls
            .spawn(async move { Answered::Unoffered(recorded.await.ok().flatten()) });
    }

    /// Returns why no further tool may run now. `None`: another tool may run.
    fn refusal(&self) -> Option<ToolFailure> {
        if self.turn.is_none() {
            return Some(ToolFailure::new(Reason::IllegalTransition, "no turn is running"));
        }
        (self.calls.len() >= MAX_CALLS).then(|| {
            let text = format!("too many tool calls at once (max {MAX_CALLS})");
            ToolFailure::new(Reason::LimitExceeded, text)
        })
    }

    pub(super) fn handle_answered(&mut self, answered: Answered) {
        match answered {
            Answered::Call { id, answer, before } => {
                if let Some(turn) = &mut self.turn {
                    turn.changes.remember(before);
                }
                let text = answer_text(&answer);
                self.record_result(&id, answer.is_err(), &text, text.len());
                self.give(Order::ToolAnswered { id, answer });
            }
            Answered::Unoffered(text) => {
                if let Some(text) = text {
                    self.give(Order::Explain(text));
                }
            }
            Answered::Ask { id, call, before } => {
                if let Some(turn) = &mut self.turn {
                    turn.changes.remember(before);
                }
                self.record_decided(&call);
                let verdict = call.judgement.verdict;
                self.give(Order::Permitted { id, verdict });
            }
        }
    }

    /// Records a call of a workspace tool or of one of the program's own tools, with the decision on it.
    pub(super) fn record_decided(&mut self, call: &DecidedCall) {
        let failure = call.judgement.verdict.as_ref().err();
        self.record_call(&RecordedCall {
            id: &call.id,
            tool: &call.tool,
            arguments: &call.arguments,
            verdict: match failure {
                None => ToolVerdict::Allowed,
                Some(_) => ToolVerdict::Denied,
            },
            reason: failure.map(ToolFailure::text).unwrap_or_default(),
            approval_id: &call.judgement.approval_id,
        });
    }

    /// Records a call that the program executes without asking.
    pub(super) fn record_started(&mut self, started: &StartedTool) {
        if !self.transcript.has_call(&started.id) {
            let StartedTool { id, tool, arguments } = started;
            self.record_call(&RecordedCall::undecided(id, tool, arguments));
        }
    }

    fn record_call(&mut self, call: &RecordedCall<'_>) {
        if let Some(turn) = &mut self.turn {
            turn.span.call(self.transcript.canonical(call.tool), call);
        }
        self.transcript.call(call);
    }

    pub(super) fn record_result(&mut self, id: &str, failed: bool, text: &str, size: usize) {
        if let Some(turn) = &mut self.turn {
            turn.span.result(id, failed);
        }
        self.transcript.result(id, failed, text, size);
    }

    /// Sends the program an order. A program that does not read the order is detected at its next turn.
    pub(super) fn give(&mut self, order: Order) {
        if let Some(agent) = &mut self.agent {
            let _ = agent.give(order);
        }
    }
}
